"""Text beneath a heading, and commands that a reader copies: never broken by us; what is hidden in them is said."""

from __future__ import annotations

from textwrap import indent

from rich.padding import Padding
from rich.text import Text

from vivace.records.privacy import REMOVED

__all__ = ["about_hidden", "command_to_copy", "indented", "to_copy"]


def to_copy(text: str, spaces: int = 0, style: str = "") -> Text:
    """For a terminal, with no newline of ours at its width. Print it with ``crop=False``, or its end is lost."""
    return Text(indent(text, " " * spaces), style, no_wrap=True, overflow="ignore")


def indented(text: str, style: str = "") -> Padding:
    """A paragraph three spaces in, wrapped at the width of a terminal; no spaces at its end where there is none."""
    return Padding(Text(text, style=style), (0, 0, 0, 3), expand=False)


def command_to_copy(command: str, style: str = "") -> list[Text]:
    lines = [to_copy(command, 2, style)]
    return [*lines, Text(f"  {hidden}", style="yellow")] if (hidden := about_hidden(command)) else lines


def about_hidden(command: str) -> str:
    """Records hold no secrets, so such a command cannot be run as it stands; "" where it can."""
    return f"put your own value for {REMOVED}" if REMOVED in command else ""
