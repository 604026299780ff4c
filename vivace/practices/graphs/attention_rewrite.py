"""Puts scaled_dot_product_attention in the place of attention that a model writes out.

A mask that comes from the model's own buffers, or is made of shapes alone, is looked at: if it is causal, the kernel is
told so and gets no mask, which is what the fastest ones want. Any other mask is handed over. Each replacement is then
compared with what it replaces, on random queries, keys and values of the same shapes and types with the real mask. One
that differs is not made.
"""

from __future__ import annotations

import copy
import inspect
import math
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import torch
from torch import fx
from torch.nn import functional

from vivace.practices.graphs.attention_pattern import Attention, Fill, Layout, Unlike, attentions_of
from vivace.practices.graphs.nodes import live_users, shape_of, value_of
from vivace.practices.graphs.values import NotComputable, compute, depends_on

__all__ = ["Mask", "Rewritten", "rewrite"]

# Relative difference of outputs. A lost mask or scale differs by tenths and more; rounding by 1e-6 in fp32 on a CPU, by
# 1e-3 where products may be in TF32, and by 1e-2 in bf16.
_TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-3, torch.float16: 1e-2, torch.bfloat16: 4e-2}
_MASKED_OUT = -1e4
_FUSED_KERNELS_WANT_DIMENSIONS = 4


class Mask(Enum):
    NONE = "no mask"
    CAUSAL = "causal"
    GIVEN = "with its mask"
    OF_TORCH = "MultiheadAttention without its weights"


@dataclass
class Rewritten:
    module: fx.GraphModule
    masks: list[Mask] = field(default_factory=list)
    """Of each attention that was replaced."""
    left: list[Unlike] = field(default_factory=list)
    """Why softmaxes were left as they are."""
    fixed: set[int] = field(default_factory=set)
    """Inputs of the graph that masks were read from."""
    drops: bool = False


def rewrite(module: fx.GraphModule, inputs: Sequence[Any], fixed: Iterable[int] = ()) -> Rewritten:
    """A new module; the old one stays. ``fixed``: identities of tensors that hold the same values in every step."""
    done, index, known = Rewritten(module), 0, set(fixed)
    done.left = attentions_of(module.graph)[1]
    _want_no_weights(done)
    while index < len(attentions_of(done.module.graph)[0]):  # one that was replaced is found no more
        index += not _replaced(done, index, inputs, known)
    return done


def _replaced(done: Rewritten, index: int, inputs: Sequence[Any], fixed: set[int]) -> bool:
    before = done.module
    after = fx.GraphModule(before, copy.deepcopy(before.graph))
    old, new = (attentions_of(module.graph)[0][index] for module in (before, after))
    try:
        with torch.no_grad():
            mask, sources = _mask_kind(new, inputs, fixed)
            output = _insert(new, mask)
            _compare(old, output, inputs)
    except _Unfit as reason:
        done.left.append(reason.why)
        return False
    except (NotComputable, RuntimeError, TypeError, ValueError, IndexError, KeyError, AttributeError):
        done.left.append(Unlike.UNCHECKED)
        return False
    new.output.replace_all_uses_with(output)
    _erase(new)
    after.recompile()
    done.module = after
    done.masks.append(mask)
    done.drops = done.drops or new.dropout > 0
    done.fixed.update(sources)
    return True


def _want_no_weights(done: Rewritten) -> None:
    """torch's own layer computes them by default, and then has no fused kernel. Most scripts drop them."""
    after = fx.GraphModule(done.module, copy.deepcopy(done.module.graph))
    for node in after.graph.nodes:
        if node.target is functional.multi_head_attention_forward and all(
            _takes_the_first(u) for u in live_users(node)
        ):
            asked = _SIGNATURE.bind(*node.args, **node.kwargs)
            if asked.arguments.get("need_weights", True):
                asked.arguments["need_weights"] = False
                node.args, node.kwargs = asked.args, asked.kwargs
                done.masks.append(Mask.OF_TORCH)
    if done.masks:
        after.recompile()
        done.module = after


_SIGNATURE = inspect.signature(functional.multi_head_attention_forward)


def _takes_the_first(user: fx.Node) -> bool:
    return user.target is operator.getitem and user.args[1:] == (0,)


class _Unfit(Exception):
    def __init__(self, why: Unlike) -> None:
        super().__init__(why.value)
        self.why = why


# -- the mask ----------------------------------------------------------------------------------------------------------


def _mask_kind(attention: Attention, inputs: Sequence[Any], fixed: set[int]) -> tuple[Mask, set[int]]:
    """And the inputs of the graph that say so."""
    nodes = [node for node, _ in attention.biases]
    for fill in attention.fills:
        nodes += [fill.where, *([fill.value] if isinstance(fill.value, fx.Node) else [])]
    if not nodes:
        return Mask.NONE, set()
    placeholders = [node for node in attention.softmax.graph.nodes if node.op == "placeholder"]
    try:
        sources = {placeholders.index(source) for node in nodes for source in depends_on(node)}
        if not all(id(inputs[source]) in fixed for source in sources):
            return Mask.GIVEN, set()
        bias = _bias(attention, inputs)
    except NotComputable:
        return Mask.GIVEN, set()
    shape = shape_of(attention.softmax)
    assert shape is not None
    if bool((bias == 0).all()):
        return Mask.NONE, sources
    allowed = torch.ones(shape[-2:], dtype=torch.bool, device=bias.device).tril()
    is_causal = bool(((bias == 0) & allowed | (bias <= _MASKED_OUT) & ~allowed).all())
    return (Mask.CAUSAL, sources) if is_causal else (Mask.GIVEN, set())


def _bias(attention: Attention, inputs: Sequence[Any]) -> torch.Tensor:
    """What the mask adds to the scores, as numbers."""
    total = torch.zeros(())
    for node, factor in attention.biases:
        bias = compute(node, inputs, {})
        total = total.to(bias.device) + bias.double() * factor
    for fill in attention.fills:
        where = compute(fill.where, inputs, {}).bool()
        value = compute(fill.value, inputs, {}) if isinstance(fill.value, fx.Node) else fill.value
        if float(value) > _MASKED_OUT:
            raise _Unfit(Unlike.MASK)
        filled = ~where if fill.inverted else where
        total = torch.where(filled, -math.inf, total.to(where.device).double())
    return total


# -- the new nodes -----------------------------------------------------------------------------------------------------


def _insert(attention: Attention, mask: Mask) -> fx.Node:
    """Before the old output. Returns the node that takes its place."""
    graph, scores = attention.output.graph, shape_of(attention.softmax)
    assert scores is not None
    with graph.inserting_before(attention.output):
        batch = scores[:-2]
        query = _operand(graph, attention.query, batch)
        key = _operand(graph, attention.key, batch, turned=attention.keys_turned)
        value = _operand(graph, attention.value, batch)
        keywords: dict[str, Any] = {"dropout_p": attention.dropout, "scale": attention.scale}
        if mask is Mask.CAUSAL:
            keywords["is_causal"] = True
        elif mask is Mask.GIVEN:
            keywords["attn_mask"] = _mask_node(graph, attention, len(scores))
        output = graph.call_function(functional.scaled_dot_product_attention, (query, key, value), keywords)
        return _as_before(graph, attention, output, len(scores))


def _operand(graph: fx.Graph, layout: Layout, batch: tuple[int, ...], turned: bool = False) -> fx.Node:
    node, shape = layout.node, shape_of(layout.node)
    if shape is None or len(shape) > _FUSED_KERNELS_WANT_DIMENSIONS:
        raise _Unfit(Unlike.SHAPES)
    if layout.order is not None:
        node, shape = graph.call_method("permute", (node, *layout.order)), tuple(shape[i] for i in layout.order)
    if turned:
        node, shape = graph.call_method("transpose", (node, -2, -1)), (*shape[:-2], shape[-1], shape[-2])
    if shape[:-2] != batch:  # one head of keys for all queries
        node = graph.call_method("expand", (node, *batch, *shape[-2:]))
    for _ in range(_FUSED_KERNELS_WANT_DIMENSIONS - len(batch) - 2):
        node = graph.call_method("unsqueeze", (node, 0))
    return node


def _mask_node(graph: fx.Graph, attention: Attention, dimensions: int) -> fx.Node:
    """True or 0 where a score counts."""
    keep, bias = None, None
    for node, factor in attention.biases:
        node = node if factor == 1.0 else graph.call_function(torch.mul, (node, factor))
        bias = node if bias is None else graph.call_function(torch.add, (bias, node))
    for fill in attention.fills:
        if fill.value == -math.inf:
            kept = _boolean(graph, fill)
            keep = kept if keep is None else graph.call_function(torch.logical_and, (keep, kept))
        else:
            bias = _filled(graph, fill, bias)
    if bias is not None:
        dtype = value_of(attention.query.node).dtype
        bias = graph.call_method("to", (bias, dtype))
        mask = bias if keep is None else graph.call_function(torch.where, (keep, bias, -math.inf))
    else:
        assert keep is not None
        mask = keep
    widest = max((len(shape_of(n) or ()) for n in _mask_sources(attention)), default=0)
    for _ in range(_FUSED_KERNELS_WANT_DIMENSIONS - dimensions if widest == dimensions else 0):
        mask = graph.call_method("unsqueeze", (mask, 0))
    return mask


def _mask_sources(attention: Attention) -> list[fx.Node]:
    return [*(node for node, _ in attention.biases), *(fill.where for fill in attention.fills)]


def _boolean(graph: fx.Graph, fill: Fill) -> fx.Node:
    """Where scores stay."""
    if not fill.inverted:
        return graph.call_function(torch.logical_not, (fill.where,))
    return graph.call_method("to", (fill.where, torch.bool))


def _filled(graph: fx.Graph, fill: Fill, bias: fx.Node | None) -> fx.Node:
    """A finite value in place of scores, added to them instead: what is added to -1e9 is lost in rounding."""
    where = graph.call_method("to", (fill.where, torch.bool))
    others: Any = 0.0 if bias is None else bias
    chosen = (where, others, fill.value) if fill.inverted else (where, fill.value, others)
    return graph.call_function(torch.where, chosen)


def _as_before(graph: fx.Graph, attention: Attention, output: fx.Node, dimensions: int) -> fx.Node:
    """In the shape and type of the product that it replaces."""
    for _ in range(_FUSED_KERNELS_WANT_DIMENSIONS - dimensions):
        output = graph.call_method("squeeze", (output, 0))
    if attention.output_order is not None:
        output = graph.call_method("permute", (output, *attention.output_order))
    output = graph.call_method("to", (output, value_of(attention.output).dtype))
    output.meta["example_value"] = value_of(attention.output)
    return output


def _erase(attention: Attention) -> None:
    """The old nodes, from the last one up, as long as nobody uses them."""
    graph, waiting = attention.output.graph, [attention.output]
    while waiting:
        node = waiting.pop()
        if node.users or node.op in ("placeholder", "output") or node._erased:
            continue
        sources = node.all_input_nodes
        graph.erase_node(node)
        waiting += sources


# -- the comparison ----------------------------------------------------------------------------------------------------


def _compare(old: Attention, output: fx.Node, inputs: Sequence[Any]) -> None:
    """On the same random queries, keys and values, with the mask of these inputs, without dropout."""
    nodes = (old.query.node, old.key.node, old.value.node)
    operands = {node: _random_like(value_of(node), seed) for seed, node in enumerate(nodes)}
    named = {node.name: node for node in output.graph.nodes}  # a copied graph keeps the names
    wanted = compute(old.output, inputs, operands)
    got = compute(output, inputs, {named[node.name]: value for node, value in operands.items()})
    if wanted.shape != got.shape:
        raise _Unfit(Unlike.DIFFERS)
    difference = (wanted.double() - got.double()).norm() / wanted.double().norm()
    dtypes = {wanted.dtype, got.dtype, *(operand.dtype for operand in operands.values())}
    if not float(difference) <= max(_TOLERANCE.get(dtype, 0.0) for dtype in dtypes):  # NaN is not
        raise _Unfit(Unlike.DIFFERS)


def _random_like(value: Any, seed: int) -> torch.Tensor:
    generator = torch.Generator(device=value.device).manual_seed(seed)
    drawn = torch.randn(tuple(value.shape), generator=generator, device=value.device, dtype=torch.float32)
    return drawn.to(value.dtype)
