"""What a training job is made of: modules, layouts, dtypes, optimizers, wrappers, debugging switches.

Read once, after the last measured step, from the objects themselves. The evidence of the practices.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from vivace.measure.inside.counting.flops import FlopCount
    from vivace.measure.inside.training import Training

__all__ = ["describe_structure", "repeated_blocks"]

_NORMS = (nn.modules.batchnorm._BatchNorm, nn.GroupNorm, nn.LayerNorm, nn.modules.instancenorm._InstanceNorm)
_CONVOLUTIONS = (nn.modules.conv._ConvNd,)
_LISTS = (nn.ModuleList, nn.Sequential)
_FEWEST_BLOCKS = 3


def describe_structure(training: Training, flops: FlopCount | None, profiling: bool) -> dict[str, Any]:
    """``flops``: what was seen where they were counted; ``profiling``: whether our own profiler runs."""
    roots = list(training.roots)
    structure: dict[str, Any] = {}
    for name, read in (
        ("roots", lambda: [_root(root) for root in roots]),
        ("modules", lambda: _kinds(roots)),
        ("parameter_dtypes", lambda: _dtypes(roots)),
        ("conv_weights_channels_last", lambda: _weights_channels_last(roots)),
        ("biases_before_norm", lambda: [name for root in roots for name in _biases_before_norm(root)][:50]),
        ("recurrent", lambda: _recurrent(roots)),
        ("repeated_blocks", lambda: {k: n for root in roots for k, n in repeated_blocks(root).items()}),
        ("optimizers", lambda: [_optimizer(o, training) for o in training.cycles.seen()]),
        ("wrappers", lambda: [_wrapper(w, training) for w in training.creations.wrappers]),
        ("attention_setting", lambda: _attention_setting(roots)),
        ("debugging", lambda: _debugging(training, profiling)),
        ("debugging_where", lambda: {n: p for n, p in training.debugging.where.items() if n in training.debugging.on}),
        ("allocator", _allocator),
        ("threads", torch.get_num_threads),
    ):
        with contextlib.suppress(Exception):  # models can be anything; what cannot be read is left out
            structure[name] = read()
    if training.forwards is not None:
        structure["autocast"] = training.forwards.autocast
        structure["eval_with_grad"] = list(training.forwards.eval_with_grad.values())
        structure["padding_share"] = training.forwards.padding_share
    if flops is not None:
        structure.update(flops.operators.as_dict())
        structure["cells"] = flops.cells.as_list()
    return structure


def _root(root: nn.Module) -> dict[str, Any]:
    return {"name": type(root).__name__, "parameters": sum(p.numel() for p in root.parameters())}


def _modules(roots: Iterable[nn.Module]) -> Iterator[nn.Module]:
    seen: set[int] = set()
    for root in roots:
        for module in root.modules():
            if id(module) not in seen:
                seen.add(id(module))
                yield module


def _kinds(roots: Iterable[nn.Module]) -> dict[str, int]:
    kinds: Counter[str] = Counter()
    for module in _modules(roots):
        if isinstance(module, _CONVOLUTIONS):
            kinds["convolution"] += 1
        elif isinstance(module, _NORMS):
            kinds["norm"] += 1
        elif isinstance(module, nn.Linear):
            kinds["linear"] += 1
        elif isinstance(module, nn.RNNBase):
            kinds["recurrent"] += 1
        elif isinstance(module, nn.Embedding):
            kinds["embedding"] += 1
        elif isinstance(module, nn.MultiheadAttention):
            kinds["attention"] += 1
    return dict(kinds)


def _recurrent(roots: Iterable[nn.Module]) -> list[dict[str, Any]]:
    layers = [module for module in _modules(roots) if isinstance(module, nn.RNNBase)]
    return [{"name": type(layer).__name__, "inputs": layer.input_size, "hidden": layer.hidden_size} for layer in layers]


def _dtypes(roots: Iterable[nn.Module]) -> dict[str, int]:
    dtypes: Counter[str] = Counter()
    for module in _modules(roots):
        for parameter in module.parameters(recurse=False):
            dtypes[str(parameter.dtype).removeprefix("torch.")] += parameter.numel()
    return dict(dtypes)


def _weights_channels_last(roots: Iterable[nn.Module]) -> float | None:
    """The share of 4-D convolution weights in channels-last order; 1×1 kernels are both and say nothing."""
    weights = [m.weight for m in _modules(roots) if isinstance(m, nn.Conv2d)]
    telling = [w for w in weights if w.shape[2] * w.shape[3] > 1 and w.shape[1] > 1]
    if not telling:
        return None
    return sum(w.is_contiguous(memory_format=torch.channels_last) for w in telling) / len(telling)


def _biases_before_norm(root: nn.Module) -> Iterator[str]:
    """Convolutions with a bias whose next sibling in order of definition is a batch norm of as many channels."""
    for parent_name, parent in root.named_modules():
        children = list(parent.named_children())
        for (name, first), (_, second) in zip(children, children[1:]):
            is_pair = isinstance(first, _CONVOLUTIONS) and isinstance(second, nn.modules.batchnorm._BatchNorm)
            if is_pair and first.bias is not None and second.num_features == first.out_channels:
                yield f"{parent_name}.{name}".lstrip(".")


def repeated_blocks(root: nn.Module) -> dict[str, int]:
    """Classes of the blocks that a network repeats: siblings of one class with parameters and children of their own."""
    counts: Counter[str] = Counter()
    for parent in root.modules():
        siblings: Counter[type] = Counter(type(child) for child in parent.children() if _is_block(child))
        for kind, count in siblings.items():
            if isinstance(parent, _LISTS) and not issubclass(kind, _LISTS):
                counts[kind.__name__] += count
    return {name: count for name, count in counts.items() if count >= _FEWEST_BLOCKS}


def _is_block(module: nn.Module) -> bool:
    return next(module.children(), None) is not None and next(module.parameters(), None) is not None


def _optimizer(optimizer: Any, training: Training) -> dict[str, Any]:
    group = optimizer.param_groups[0]
    tensors = [p for g in optimizer.param_groups for p in g["params"]]
    return {
        "name": type(optimizer).__name__,
        "fused": group.get("fused"),
        "foreach": group.get("foreach"),
        "has_fused": "fused" in optimizer.defaults,
        "has_foreach": "foreach" in optimizer.defaults,
        "tensors": len(tensors),
        "device": tensors[0].device.type if tensors else None,
        "where": training.creations.place(optimizer),
    }


def _wrapper(wrapper: nn.Module, training: Training) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if isinstance(wrapper, nn.DataParallel):
        options["devices"] = len(getattr(wrapper, "device_ids", []) or [])
    for name in ("find_unused_parameters", "gradient_as_bucket_view", "static_graph", "bucket_bytes_cap"):
        if hasattr(wrapper, name):
            options[name] = getattr(wrapper, name)
    if options.get("find_unused_parameters"):
        with contextlib.suppress(Exception):
            options["unused_parameters"] = sum(p.grad is None for p in wrapper.parameters() if p.requires_grad)
    return {"name": type(wrapper).__name__, "options": options, "where": training.creations.place(wrapper)}


def _attention_setting(roots: Iterable[nn.Module]) -> str | None:
    """What a transformers model was told to use: ``eager``, ``sdpa``, ``flash_attention_2``, …"""
    for root in roots:
        config = getattr(getattr(root, "module", root), "config", None)
        setting = getattr(config, "_attn_implementation", None)
        if isinstance(setting, str):
            return setting
    return None


def _debugging(training: Training, profiling: bool) -> list[str]:
    """Debugging switches that were on in a step, or are on now; our own profiler is none of them."""
    training.debugging.look(our_profiler=profiling)
    return sorted(training.debugging.on)


def _allocator() -> str:
    return os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get("PYTORCH_CUDA_ALLOC_CONF") or ""
