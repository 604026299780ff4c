"""A table that a narrow terminal shows as one paragraph per row: names and figures are wrapped there, never cut."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

__all__ = ["FittingTable"]

_ANY_WIDTH = 10_000
_INDENT = 2


class FittingTable(Table):
    """The first column names a row; where it has no header (a number), the second does so with it."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if Measurement.get(console, options.update(max_width=_ANY_WIDTH), self).minimum <= options.max_width:
            for column in self.columns:
                column.no_wrap = not any(" " in str(part) for part in (column.header, *column.cells))
            yield from super().__rich_console__(console, options)
            return
        if self.title:
            yield self._text(console, self.title)
        for row in range(self.row_count):
            yield from self._paragraph(console, row)
        if self.caption:
            yield self._text(console, self.caption)

    def _paragraph(self, console: Console, row: int) -> Iterator[Text | Padding]:
        cells = [(str(column.header), self._text(console, list(column.cells)[row])) for column in self.columns]
        named = 1 if cells[0][0] or len(cells) == 1 else 2
        yield Text("  ").join(text for _, text in cells[:named])
        figures = [Text(f"{header} ", style="dim").append_text(text) for header, text in cells[named:] if text.plain]
        if figures:
            yield Padding(Text(", ").join(figures), (0, 0, 0, _INDENT))

    @staticmethod
    def _text(console: Console, cell: object) -> Text:
        return cell.copy() if isinstance(cell, Text) else console.render_str(str(cell))
