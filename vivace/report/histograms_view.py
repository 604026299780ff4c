"""The magnitudes of activations and gradients in a terminal: what each narrow format would lose of them."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from vivace.records.histograms import Histogram, Histograms
from vivace.report.figures import counted
from vivace.report.fitting import FittingTable
from vivace.report.histogram_words import magnitudes, shares_in_words, verdicts, worst_layers

__all__ = ["histograms_view"]

_BLOCKS = "▁▂▃▄▅▆▇█"
_FIRST_OCTAVE, _LAST_OCTAVE = -40, 16


def histograms_view(record: Histograms) -> RenderableType:
    parts: list[RenderableType] = [
        Text(f"\nmagnitudes, counted in {counted(record.steps, 'step')} of their own", style="bold"),
        _table([(str(one.numbers), one) for one in record.together]),
        Text("too small / subnormal / too large: shares of the values that are not zero", style="dim"),
        *(Text(f"{one.numbers:>20}  {sparkline(one)}") for one in record.together),
        Text(f"{'2^':>20}  {_axis()}", style="dim"),
        *(Text(text) for text in verdicts(record)),
    ]
    if worst := worst_layers(record):
        parts.append(_table([(f"{one.layer}: {one.numbers}", one) for one in worst], "layers that fp16 harms most"))
    if record.loss_scale is not None:
        text = f"gradients without the factor of the script's GradScaler, {record.loss_scale:g}"
        parts.append(Text(text, style="dim"))
    parts += [Text(note, style="dim") for note in record.notes]
    return Group(*parts)


def _table(rows: list[tuple[str, Histogram]], title: str = "") -> Table:
    table = FittingTable(box=None, pad_edge=False, show_edge=False, header_style="dim")
    table.add_column(title)
    table.add_column("magnitudes", justify="right")
    names = [shares.format for shares in rows[0][1].formats] if rows else []
    for name in names:
        table.add_column(name, justify="right")
    for label, one in rows:
        table.add_row(escape(label), magnitudes(one), *(shares_in_words(one.shares(name)) for name in names))
    return table


def sparkline(histogram: Histogram) -> str:
    """One character per octave from 2^-40 to 2^16; what is beyond is in the outermost ones."""
    places = [0] * (_LAST_OCTAVE - _FIRST_OCTAVE + 1)
    for number, count in enumerate(histogram.counts):
        octave = min(max(histogram.first_octave + number, _FIRST_OCTAVE), _LAST_OCTAVE)
        places[octave - _FIRST_OCTAVE] += count
    most = max(places) or 1
    return "".join(_BLOCKS[(len(_BLOCKS) - 1) * count // most] if count else " " for count in places)


def _axis() -> str:
    axis = [" "] * (_LAST_OCTAVE - _FIRST_OCTAVE + 4)
    for octave in (-40, -24, -14, 0, 16):
        for offset, letter in enumerate(str(octave)):
            axis[octave - _FIRST_OCTAVE + offset] = letter
    return "".join(axis).rstrip()
