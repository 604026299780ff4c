"""Whole lines from the bytes of a stream, cut anywhere: what a person would read, without colours.

A progress bar writes over its line with a carriage return: each state of it is a line here.
"""

from __future__ import annotations

import codecs
import re

__all__ = ["LineSplitter", "without_colours"]

LONGEST_LINE = 1 << 16
"""Characters. A longer line is cut: no metric is looked for beyond."""
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_ENDS = re.compile(r"\r\n|\n|\r")


class LineSplitter:
    """Feed it bytes as they come; it returns the lines that are whole."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        self._too_long = False

    def feed(self, data: bytes) -> list[str]:
        text = self._rest + self._decoder.decode(data)
        cut_return = text.endswith("\r")  # perhaps the first half of \r\n
        *lines, self._rest = _ENDS.split(text[:-1] if cut_return else text)
        self._rest += "\r" * cut_return
        if self._too_long and lines:
            lines, self._too_long = lines[1:], False  # the end of a line that was given out already
        if len(self._rest) > LONGEST_LINE:
            lines, self._rest = lines if self._too_long else [*lines, self._rest], ""
            self._too_long = True
        return [clean for line in lines if (clean := without_colours(line[:LONGEST_LINE]))]

    def finish(self) -> list[str]:
        """What came without a line's end."""
        rest, self._rest = self._rest + self._decoder.decode(b"", final=True), ""
        return [clean] if not self._too_long and (clean := without_colours(rest.rstrip("\r"))) else []


def without_colours(line: str) -> str:
    r"""
    >>> without_colours("\x1b[1;32mval loss\x1b[0m 1.4 ")
    'val loss 1.4'
    """
    return _ESCAPES.sub("", line).replace("\x1b", "").strip()
