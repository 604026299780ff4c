"""Draws an ``Explained`` on the terminal: what is translated first, then the commands, then the rest with reasons."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from vivace.records.explained import Answer, Explained

__all__ = ["explained_view"]

_ORDER = (Answer.TRANSLATED, Answer.AUTO, Answer.NOT_SUPPORTED, Answer.UNKNOWN, Answer.NOT_NEEDED)
_STYLE = {Answer.NOT_SUPPORTED: "yellow", Answer.UNKNOWN: "yellow", Answer.NOT_NEEDED: "dim", Answer.AUTO: ""}


def explained_view(explained: Explained) -> RenderableType:
    counts = ", ".join(f"{explained.count(answer)} {answer}" for answer in _ORDER if explained.count(answer))
    parts: list[RenderableType] = [
        Text.from_markup(
            f"[bold]{escape(explained.source)}[/]: {len(explained.keys)} keys of {explained.tool}: {counts}"
        ),
        Text(f"layout {explained.layout}, {explained.ranks} process{'es' * (explained.ranks > 1)}"),
        Text(),
        _table(explained),
        Text(),
        Text("vivace's own models:"),
        Text(f"  {explained.train_command}", no_wrap=True, overflow="ignore"),
        Text("your own script, without DeepSpeed in it:"),
        Text(f"  {explained.run_command}", no_wrap=True, overflow="ignore"),
    ]
    parts += [Text(f"- {note}", style="dim") for note in explained.notes]
    return Group(*parts)


def _table(explained: Explained) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("key", "value", "answer", "in vivace", "why"):
        table.add_column(name, overflow="fold")
    for answer in _ORDER:
        for one in explained.keys:
            if one.answer is answer:
                words = (one.key, one.value, str(one.answer), one.ours, one.why)
                table.add_row(*(escape(word) for word in words), style=_STYLE.get(answer, ""))
    return table
