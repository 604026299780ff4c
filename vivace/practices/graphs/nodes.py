"""Reads the nodes of a graph that torch.compile has captured: which operation, on what, of what shape.

The graphs are those that dynamo hands to a backend: functions, methods and operators as the script writes them. torch
2.4 leaves layers such as Dropout as modules, newer releases inline them.
"""

from __future__ import annotations

import operator
from enum import Enum
from typing import Any

import torch
from torch import fx
from torch.nn import functional

__all__ = ["Operation", "argument", "ends_in_place", "live_users", "operation_of", "shape_of", "value_of"]


class Operation(Enum):
    MATMUL = "matmul"
    ADD_MATMUL = "baddbmm"
    EINSUM = "einsum"
    MULTIPLY = "multiply"
    DIVIDE = "divide"
    ADD = "add"
    SUBTRACT = "subtract"
    FILL = "masked_fill"
    WHERE = "where"
    CAST = "cast"
    SOFTMAX = "softmax"
    DROPOUT = "dropout"
    OTHER = "other"


_FUNCTIONS = {
    Operation.MATMUL: (operator.matmul, torch.matmul, torch.bmm),
    Operation.ADD_MATMUL: (torch.baddbmm,),
    Operation.EINSUM: (torch.einsum, torch.functional.einsum),
    Operation.MULTIPLY: (operator.mul, operator.imul, torch.mul, torch.multiply),
    Operation.DIVIDE: (operator.truediv, operator.itruediv, torch.div, torch.true_divide),
    Operation.ADD: (operator.add, operator.iadd, torch.add),
    Operation.SUBTRACT: (operator.sub, operator.isub, torch.sub),
    Operation.FILL: (torch.masked_fill,),
    Operation.WHERE: (torch.where,),
    Operation.SOFTMAX: (functional.softmax, torch.softmax),
    Operation.DROPOUT: (functional.dropout, torch.dropout),
}
_METHODS = {
    Operation.MATMUL: ("matmul", "bmm", "__matmul__"),
    Operation.MULTIPLY: ("mul", "mul_", "multiply"),
    Operation.DIVIDE: ("div", "div_", "true_divide"),
    Operation.ADD: ("add", "add_"),
    Operation.SUBTRACT: ("sub", "sub_"),
    Operation.FILL: ("masked_fill", "masked_fill_"),
    Operation.WHERE: ("where",),
    Operation.CAST: ("float", "half", "bfloat16", "to", "type", "type_as"),
    Operation.SOFTMAX: ("softmax",),
}
_MODULES = {Operation.SOFTMAX: torch.nn.Softmax, Operation.DROPOUT: torch.nn.Dropout}

_IN_PLACE = (operator.iadd, operator.imul, operator.itruediv, operator.isub)
_OF_FUNCTION: dict[Any, Operation] = {
    function: operation for operation, functions in _FUNCTIONS.items() for function in functions
}
_OF_METHOD = {name: operation for operation, names in _METHODS.items() for name in names}


def operation_of(node: fx.Node) -> Operation:
    if node.op == "call_function":
        return _OF_FUNCTION.get(node.target, Operation.OTHER)
    if node.op == "call_method":
        return _OF_METHOD.get(str(node.target), Operation.OTHER)
    if node.op == "call_module":
        module = _module_of(node)
        return next((operation for operation, kind in _MODULES.items() if type(module) is kind), Operation.OTHER)
    return Operation.OTHER


def argument(node: fx.Node, position: int, name: str, default: Any = None) -> Any:
    """By position or by name; of a layer that is still a module, its attribute."""
    if node.op == "call_module" and position > 0:
        return getattr(_module_of(node), name, default)
    if position < len(node.args):
        return node.args[position]
    return node.kwargs.get(name, default)


def value_of(node: Any) -> Any:
    """The fake tensor that dynamo has for it: type, device and shape, without values."""
    return node.meta.get("example_value") if isinstance(node, fx.Node) else None


def shape_of(node: Any) -> tuple[int, ...] | None:
    """None of anything but a tensor of known sizes."""
    value = value_of(node)
    if not isinstance(value, torch.Tensor) or not all(type(size) is int for size in value.shape):
        return None
    return tuple(value.shape)


def ends_in_place(node: fx.Node) -> bool:
    """Whether it writes to its first argument."""
    if node.op == "call_method":
        return str(node.target).endswith("_") and not str(node.target).endswith("__")
    return node.op == "call_function" and node.target in (
        operator.iadd,
        operator.imul,
        operator.itruediv,
        operator.isub,
    )


def live_users(node: fx.Node) -> list[fx.Node]:
    """Those whose results are used, or that write in place."""
    return [user for user in node.users if user.op == "output" or ends_in_place(user) or live_users(user)]


def _module_of(node: fx.Node) -> torch.nn.Module:
    owner = node.graph.owning_module
    assert owner is not None
    return owner.get_submodule(str(node.target))
