"""What an offset in the bytecode tells: the line, the lines that may have spent the time instead, and whether the
instruction asks for a garbage collection. Pure. Python 3.9 to 3.14."""

from __future__ import annotations

import dis
import functools
from types import CodeType
from typing import Any, NamedTuple

__all__ = ["asks_for_a_collection", "line_of", "lines_that_may_have"]

# After these Python looks for signals, and a sample lands on them. Not after operators: what they take shows at the
# next call. "CALL_INTRINSIC" and "PRECALL" come with calls, and looking back ends at them as well.
_LOOKS = ("CALL", "PRECALL", "RESUME", "JUMP_BACKWARD", "JUMP_ABSOLUTE", "YIELD_VALUE", "SEND", "FOR_ITER")
_OPERATORS = ("BINARY_", "INPLACE_", "COMPARE_OP", "CONTAINS_OP", "UNARY_", "STORE_SUBSCR", "DELETE_")
_HARMLESS = ("BINARY_SUBSCR_", "IS_OP")
_NAMES = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_GLOBAL", "LOAD_NAME", "LOAD_FAST", "LOAD_DEREF")


class _Instruction(NamedTuple):
    offset: int
    name: str
    argument: Any
    line: int


@functools.lru_cache(maxsize=512)
def _instructions(code: CodeType) -> tuple[_Instruction, ...]:
    lines = dict(dis.findlinestarts(code))
    found = []
    line = code.co_firstlineno
    for one in dis.get_instructions(code):
        line = lines.get(one.offset) or line
        found.append(_Instruction(one.offset, one.opname, one.argval, line))
    return tuple(found)


def _before(code: CodeType, at: int) -> list[_Instruction]:
    """The instruction at the offset, then those before it, the nearest first. Values may be cached between."""
    return [one for one in reversed(_instructions(code)) if one.offset <= at]


def line_of(code: CodeType, at: int) -> int:
    """
    >>> line_of(compile("x = 1\\ny = len('')\\n", "", "exec"), 10_000)
    2
    """
    instructions = _before(code, at)
    return instructions[0].line if instructions else code.co_firstlineno


def lines_that_may_have(code: CodeType, at: int) -> tuple[int, int]:
    """First and last line among which a sample that came late cannot choose: operators stand before the call."""
    here, *before = _before(code, at) or [_Instruction(0, "", None, code.co_firstlineno)]
    first = here.line
    for one in before:
        if one.name.startswith(_LOOKS):
            break
        if one.name.startswith(_OPERATORS):
            first = min(first, one.line)
    return first, here.line


def asks_for_a_collection(code: CodeType, at: int) -> bool:
    """``gc.collect()``: whoever asks for it pays for it."""
    here, *before = _before(code, at) or [_Instruction(0, "", None, 0)]
    if not here.name.startswith(("CALL", "PRECALL")):
        return False
    named = (one.argument for one in before if one.name in _NAMES and one.line == here.line)
    return any(name == "collect" for name in list(named)[:3])
