"""Tensor parallelism for Hugging Face models: by their own ``tp_plan`` where they have one, else by Llama's names.

For scripts that build such a model themselves; ``vivace train`` has its own GPT. Without sequence parallelism: their
blocks pass tensors by keyword, in shapes of their own.
"""

from __future__ import annotations

import fnmatch

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from vivace.errors import UserError
from vivace.parallel.tensor import Replicated

__all__ = ["huggingface_plan", "split_huggingface"]

_BY_NAME = {
    "*.q_proj": "colwise", "*.k_proj": "colwise", "*.v_proj": "colwise", "*.o_proj": "rowwise",
    "*.gate_proj": "colwise", "*.up_proj": "colwise", "*.down_proj": "rowwise",
    "*.q_norm": "replicated_with_grad_allreduce", "*.k_norm": "replicated_with_grad_allreduce",
}  # fmt: skip
_FUSED = ("c_attn", "qkv_proj", "query_key_value", "Wqkv", "gate_up_proj")
_HEADS = 2  # the axis of heads where a norm of each head's queries sees them: batch, tokens, heads, size


def split_huggingface(model: nn.Module, mesh: DeviceMesh) -> None:
    """Turn all parameters into DTensors on ``mesh``: split by the plan, or the same on all ranks."""
    plan = huggingface_plan(model)
    parallelize_module(model, mesh, plan)
    for module in model.modules():
        own = list(module.parameters(recurse=False))
        if own and not any(isinstance(parameter, DTensor) for parameter in own):
            Replicated()._apply(module, mesh)


def huggingface_plan(model: nn.Module) -> dict[str, ParallelStyle]:
    """Module name → style. A ``UserError`` for a model that no plan covers."""
    names = [name for name, module in model.named_modules() if any(True for _ in module.parameters(recurse=False))]
    given = getattr(model, "tp_plan", None) or getattr(model, "_tp_plan", None) or _BY_NAME
    plan = {name: style for pattern, style in given.items() for name in fnmatch.filter(names, pattern)}
    if not any(style == "rowwise" for style in plan.values()):
        fused = next((name for name in names if name.rpartition(".")[2] in _FUSED), None)
        why = f"{fused} holds several projections in one matrix" if fused else "its layers have no names that are known"
        raise UserError(
            f"{type(model).__name__} has no plan for tensor parallelism: {why}",
            hint="shard it instead (fs in the layout), or give the model a tp_plan",
        )
    return {name: _style(style, name) for name, style in plan.items()}


def _style(word: str, name: str) -> ParallelStyle:
    made = {
        "colwise": lambda: ColwiseParallel(),
        "rowwise": lambda: RowwiseParallel(),
        "colwise_rep": lambda: ColwiseParallel(output_layouts=Replicate()),
        "colwise_gather_output": lambda: ColwiseParallel(output_layouts=Replicate()),
        "embedding_rowwise": lambda: RowwiseParallel(input_layouts=Replicate()),
        "replicated_with_grad_allreduce": lambda: SequenceParallel(sequence_dim=_HEADS, use_local_output=True),
    }
    if word not in made:
        raise UserError(
            f"the plan of {name} is {word!r}, which vivace does not know", hint=f"known are {', '.join(made)}"
        )
    return made[word]()
