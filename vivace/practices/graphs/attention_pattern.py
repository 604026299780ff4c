"""Finds attention that a model writes out: softmax(q @ k.T * scale + mask), dropout, @ v.

From each softmax the graph is followed up to the product of queries and keys, and down to the product with the values.
Everything between must be a scale, a mask, a cast or one dropout, and be used for nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from torch import fx

from vivace.practices.graphs.nodes import Operation, argument, live_users, operation_of, shape_of

__all__ = ["Attention", "Fill", "Layout", "Unlike", "attentions_of"]

_MASKED_OUT = -1e4
"""Scores at or below this have no weight: exp(-1e4) is 0 in every format."""


class Unlike(Enum):
    """Why a softmax is not replaced: sentences for the user."""

    NOT_LAST = "its softmax is not over the last dimension"
    SCORES_USED = "the scores or the weights of its attention are used elsewhere"
    NOT_SCORES = "its softmax is not of a product of queries and keys"
    NOT_WEIGHTS = "its softmax is not multiplied with values"
    SHAPES = "its queries, keys and values have no known or no matching shapes"
    MASK = "its mask cannot be followed"
    DIFFERS = "its result differs from that of scaled_dot_product_attention"
    UNCHECKED = "its result could not be compared"


@dataclass(frozen=True)
class Fill:
    """Scores where ``where`` is true (or false, if ``inverted``) become ``value``."""

    where: fx.Node
    value: Any
    inverted: bool


@dataclass(frozen=True)
class Layout:
    """How an operand's dimensions are ordered for the attention; None: as they are."""

    node: fx.Node
    order: tuple[int, ...] | None = None


@dataclass
class Attention:
    """One that can be replaced. Keys may come as a product takes them: ``(…, E, S)`` if ``keys_turned``."""

    softmax: fx.Node
    query: Layout
    key: Layout
    keys_turned: bool
    value: Layout
    output: fx.Node
    output_order: tuple[int, ...] | None
    scale: float = 1.0
    biases: list[tuple[fx.Node, float]] = field(default_factory=list)
    """Added to the scores, each times a factor."""
    fills: list[Fill] = field(default_factory=list)
    dropout: float = 0.0


class _NotIt(Exception):
    def __init__(self, why: Unlike) -> None:
        super().__init__(why.value)
        self.why = why


def attentions_of(graph: fx.Graph) -> tuple[list[Attention], list[Unlike]]:
    """All in a graph, in order; and why other softmaxes are none."""
    found, others = [], []
    for node in graph.nodes:
        if operation_of(node) is Operation.SOFTMAX and live_users(node):
            try:
                found.append(_attention_around(node))
            except _NotIt as reason:
                others.append(reason.why)
    return found, others


def _attention_around(softmax: fx.Node) -> Attention:
    shape = shape_of(softmax)
    if shape is None:
        raise _NotIt(Unlike.SHAPES)
    if len(shape) < 2 or argument(softmax, 1, "dim") not in (-1, len(shape) - 1):
        raise _NotIt(Unlike.NOT_LAST)
    output, dropout = _follow_down(softmax)
    value, output_order = _values_of(output)
    scores = _Scores()
    product = scores.follow_up(softmax)
    query, key, turned = _queries_and_keys(product)
    return Attention(
        softmax, query, key, turned, value, output, output_order, scores.factor, scores.biases, scores.fills, dropout
    )


# -- from the softmax down ---------------------------------------------------------------------------------------------


def _follow_down(softmax: fx.Node) -> tuple[fx.Node, float]:
    """To the product with the values; and the dropout on the way, where it drops."""
    node, dropout = softmax, 0.0
    while True:
        users = live_users(node)
        if len(users) != 1:
            raise _NotIt(Unlike.SCORES_USED)
        user = users[0]
        operation = operation_of(user)
        if operation in (Operation.MATMUL, Operation.EINSUM):
            if _operands(user)[0] is not node:
                raise _NotIt(Unlike.NOT_WEIGHTS)
            return user, dropout
        if operation is Operation.DROPOUT and user.args[0] is node and not dropout:
            dropout = _dropped(user)
        elif operation is not Operation.CAST or user.args[0] is not node:
            raise _NotIt(Unlike.SCORES_USED if user.op == "output" else Unlike.NOT_WEIGHTS)
        node = user


def _dropped(node: fx.Node) -> float:
    share, training = argument(node, 1, "p", 0.5), argument(node, 2, "training", True)
    if not isinstance(share, (int, float)) or not isinstance(training, bool):
        raise _NotIt(Unlike.NOT_WEIGHTS)
    return float(share) if training else 0.0


def _operands(node: fx.Node) -> tuple[Any, Any]:
    """Of a product or an einsum of two."""
    if operation_of(node) is not Operation.EINSUM:
        return argument(node, 0, "input"), argument(node, 1, "other", argument(node, 1, "mat2"))
    operands = list(node.args[1:])
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = list(operands[0])
    if len(operands) != 2:
        raise _NotIt(Unlike.NOT_SCORES)
    return operands[0], operands[1]


def _values_of(output: fx.Node) -> tuple[Layout, tuple[int, ...] | None]:
    _weights, values = _operands(output)
    if not isinstance(values, fx.Node) or shape_of(values) is None or shape_of(output) is None:
        raise _NotIt(Unlike.SHAPES)
    if operation_of(output) is not Operation.EINSUM:
        return Layout(values), None
    first, second, result = _letters(output)
    *batch, row, column = first
    inner = [letter for letter in second if letter not in first]
    if len(inner) != 1 or column in result or set(second) != {*batch, column, *inner}:
        raise _NotIt(Unlike.NOT_WEIGHTS)
    natural = [*batch, row, *inner]
    if sorted(natural) != sorted(result):
        raise _NotIt(Unlike.NOT_WEIGHTS)
    return Layout(values, _order(second, [*batch, column, *inner])), _order(natural, result)


# -- from the softmax up -----------------------------------------------------------------------------------------------


class _Scores:
    """What happens to the product of queries and keys before the softmax, followed from there."""

    def __init__(self) -> None:
        self.factor = 1.0
        self.biases: list[tuple[fx.Node, float]] = []
        self.fills: list[Fill] = []

    def follow_up(self, softmax: fx.Node) -> fx.Node:
        """To the product itself."""
        node: Any = softmax.args[0] if softmax.args else softmax.kwargs.get("input")
        while isinstance(node, fx.Node):
            if len(live_users(node)) != 1:
                raise _NotIt(Unlike.SCORES_USED)
            operation = operation_of(node)
            if operation in (Operation.MATMUL, Operation.EINSUM):
                return node
            if operation is Operation.ADD_MATMUL:
                self._add(node.args[0])
                return node
            node = self._through(node, operation)
        raise _NotIt(Unlike.NOT_SCORES)

    def _through(self, node: fx.Node, operation: Operation) -> Any:
        """The operand that holds the scores."""
        if operation is Operation.CAST:
            return node.args[0]
        if operation is Operation.MULTIPLY:
            scores, factor = _scores_and_number(node.args[0], argument(node, 1, "other"))
            self.factor *= factor
            return scores
        if operation is Operation.DIVIDE:
            scores, divisor = node.args[0], argument(node, 1, "other")
            if not isinstance(divisor, (int, float)) or node.kwargs.get("rounding_mode") or divisor == 0:
                raise _NotIt(Unlike.NOT_SCORES)
            self.factor /= divisor
            return scores
        if operation in (Operation.ADD, Operation.SUBTRACT) and "alpha" not in node.kwargs:
            return self._through_sum(node, -1.0 if operation is Operation.SUBTRACT else 1.0)
        if operation is Operation.FILL:
            self.fills.append(self._fill(argument(node, 1, "mask"), argument(node, 2, "value"), inverted=False))
            return node.args[0]
        if operation is Operation.WHERE:
            return self._through_where(node)
        raise _NotIt(Unlike.NOT_SCORES)

    def _through_sum(self, node: fx.Node, sign: float) -> Any:
        first, second = node.args[0], argument(node, 1, "other")
        if isinstance(second, (int, float)):
            return first  # a constant changes no softmax
        if _leads_to_a_product(first):
            self._add(second, sign)
            return first
        if sign > 0 and _leads_to_a_product(second):
            self._add(first)
            return second
        raise _NotIt(Unlike.NOT_SCORES)

    def _add(self, bias: Any, sign: float = 1.0) -> None:
        if not isinstance(bias, fx.Node):
            raise _NotIt(Unlike.MASK)
        self.biases.append((bias, sign * self.factor))

    def _through_where(self, node: fx.Node) -> Any:
        if node.op == "call_method":  # scores.where(condition, other)
            scores, condition, other = node.args[0], argument(node, 1, "condition"), argument(node, 2, "other")
        else:
            condition, scores, other = (argument(node, i, n) for i, n in enumerate(("condition", "input", "other")))
        if _leads_to_a_product(scores):
            self.fills.append(self._fill(condition, other, inverted=True))
            return scores
        if _leads_to_a_product(other):
            self.fills.append(self._fill(condition, scores, inverted=False))
            return other
        raise _NotIt(Unlike.NOT_SCORES)

    def _fill(self, where: Any, value: Any, inverted: bool) -> Fill:
        """A value that is no number is a tensor without dimensions; its size is looked at when the mask is."""
        if not isinstance(where, fx.Node) or self.factor <= 0:
            raise _NotIt(Unlike.MASK)
        if isinstance(value, fx.Node):
            if shape_of(value) != ():
                raise _NotIt(Unlike.MASK)
        elif not isinstance(value, (int, float)) or value > _MASKED_OUT:
            raise _NotIt(Unlike.MASK)
        return Fill(where, value, inverted)


def _scores_and_number(first: Any, second: Any) -> tuple[Any, float]:
    if isinstance(second, (int, float)):
        return first, float(second)
    if isinstance(first, (int, float)):
        return second, float(first)
    raise _NotIt(Unlike.NOT_SCORES)


_ON_THE_WAY = (
    Operation.CAST, Operation.MULTIPLY, Operation.DIVIDE, Operation.ADD, Operation.SUBTRACT, Operation.FILL,
    Operation.WHERE,
)  # fmt: skip


def _leads_to_a_product(node: Any) -> bool:
    """Whether the scores come from here: a mask has no product of two tensors in it."""
    if not isinstance(node, fx.Node):
        return False
    operation = operation_of(node)
    if operation in (Operation.MATMUL, Operation.EINSUM, Operation.ADD_MATMUL):
        return True
    return operation in _ON_THE_WAY and any(_leads_to_a_product(source) for source in node.all_input_nodes)


def _queries_and_keys(product: fx.Node) -> tuple[Layout, Layout, bool]:
    if operation_of(product) is Operation.ADD_MATMUL:
        query, key = argument(product, 1, "batch1"), argument(product, 2, "batch2")
        if product.kwargs.get("alpha", 1) != 1 or product.kwargs.get("beta", 1) != 1:
            raise _NotIt(Unlike.NOT_SCORES)
    else:
        query, key = _operands(product)
    if not (isinstance(query, fx.Node) and isinstance(key, fx.Node) and shape_of(query) and shape_of(key)):
        raise _NotIt(Unlike.SHAPES)
    if operation_of(product) is not Operation.EINSUM:
        return Layout(query), Layout(key), True
    first, second, result = _letters(product)
    *batch, row, column = result
    inner = [letter for letter in first if letter not in result]
    wanted = ([*batch, row, *inner], [*batch, column, *inner])
    if len(inner) != 1 or any(sorted(have) != sorted(want) for have, want in zip((first, second), wanted)):
        raise _NotIt(Unlike.NOT_SCORES)
    return Layout(query, _order(first, wanted[0])), Layout(key, _order(second, wanted[1])), False


def _letters(node: fx.Node) -> tuple[list[str], list[str], list[str]]:
    """Of an einsum of two: the letters of its operands and of its result."""
    equation = node.args[0]
    if not isinstance(equation, str):
        raise _NotIt(Unlike.NOT_SCORES)
    operands, arrow, result = equation.replace(" ", "").partition("->")
    first, comma, second = operands.partition(",")
    parts = (first, second, result)
    if not arrow or not comma or any(not part.isalpha() or len(set(part)) != len(part) for part in parts):
        raise _NotIt(Unlike.NOT_SCORES)
    return list(first), list(second), list(result)


def _order(have: list[str], want: list[str]) -> tuple[int, ...] | None:
    order = tuple(have.index(letter) for letter in want)
    return None if order == tuple(range(len(order))) else order
