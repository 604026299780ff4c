"""Computes the values of single nodes of a captured graph, at the time of capture: masks, and attention on test data.

Nothing is computed that writes in place or draws random numbers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from torch import fx
from torch.nn import functional

from vivace.practices.graphs.nodes import Operation, argument, ends_in_place, operation_of

__all__ = ["NotComputable", "compute", "depends_on"]

_RANDOM = re.compile("rand|dropout|bernoulli|multinomial|normal|uniform|exponential")


class NotComputable(Exception):
    """A node that would draw, write, or need what is not there."""


def compute(node: fx.Node, inputs: Sequence[Any], given: Mapping[fx.Node, Any]) -> Any:
    """The value of a node, from a graph's inputs; ``given`` stands in for the nodes it has. Dropout drops nothing."""
    known: dict[fx.Node, Any] = dict(given)
    placeholders = {each: index for index, each in enumerate(_placeholders(node.graph))}
    for each in _ancestors(node, given):
        if each in known:
            continue
        if each.op == "placeholder":
            known[each] = inputs[placeholders[each]]
        elif each.op == "get_attr":
            known[each] = _attribute(each)
        else:
            known[each] = _result(each, known)
    return known[node]


def depends_on(node: fx.Node) -> set[fx.Node]:
    """The inputs of the graph that a node is computed from. Raises ``NotComputable`` if it is random."""
    ancestors = _ancestors(node, {})
    for each in ancestors:
        if each.op.startswith("call") and _RANDOM.search(_name(each)):
            raise NotComputable(_name(each))
    return {each for each in ancestors if each.op == "placeholder"}


def _result(node: fx.Node, known: Mapping[fx.Node, Any]) -> Any:
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda source: known[source])
    if operation_of(node) is Operation.DROPOUT:
        return known[argument(node, 0, "input")]
    if node.target is functional.scaled_dot_product_attention:
        return functional.scaled_dot_product_attention(*args, **{**kwargs, "dropout_p": 0.0})
    if _RANDOM.search(_name(node)) or (ends_in_place(node) and _writes_to_an_input(node)):
        raise NotComputable(_name(node))
    if node.op == "call_function":
        assert callable(node.target)
        return node.target(*args, **kwargs)
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)
    if node.op == "call_module":
        assert node.graph.owning_module is not None
        return node.graph.owning_module.get_submodule(str(node.target))(*args, **kwargs)
    raise NotComputable(node.op)


def _writes_to_an_input(node: fx.Node) -> bool:
    """Or to a view of one, for all that is known."""
    written = node.args[0]
    return not isinstance(written, fx.Node) or written.op in ("placeholder", "get_attr")


def _ancestors(node: fx.Node, given: Mapping[fx.Node, Any]) -> list[fx.Node]:
    """With the node itself, in the order of the graph; nothing above what is given."""
    wanted, waiting = {node}, [node]
    while waiting:
        each = waiting.pop()
        if each in given:
            continue
        for source in each.all_input_nodes:
            if source not in wanted:
                wanted.add(source)
                waiting.append(source)
    return [each for each in node.graph.nodes if each in wanted]


def _placeholders(graph: fx.Graph) -> list[fx.Node]:
    return [node for node in graph.nodes if node.op == "placeholder"]


def _attribute(node: fx.Node) -> Any:
    value: Any = node.graph.owning_module
    for name in str(node.target).split("."):
        value = getattr(value, name)
    return value


def _name(node: fx.Node) -> str:
    if node.op == "call_module":
        assert node.graph.owning_module is not None
        return type(node.graph.owning_module.get_submodule(str(node.target))).__name__.lower()
    return str(getattr(node.target, "__name__", node.target))
