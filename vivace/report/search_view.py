"""What a finder ran and what it recommends, in a terminal. Called by ``vivace.cli``; knows records only.

To be printed with ``crop=False``: commands are not broken at the width of the terminal.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from vivace.records.base import last_line
from vivace.records.search import BatchSearch, BatchTried, LoaderSearch, LoaderTried
from vivace.records.trial import Outcome
from vivace.report.figures import bytes_gib, counted
from vivace.report.fitting import FittingTable
from vivace.report.to_copy import command_to_copy, to_copy

__all__ = ["batch_view", "loader_setting", "loader_view"]

_BAR = 16


def batch_view(search: BatchSearch) -> RenderableType:
    best = _best(search.tried)
    table = FittingTable(box=None, pad_edge=False, header_style="dim")
    for name in (
        search.flag.rstrip("="),
        "global batch",
        "samples/s",
        "",
        f"{search.memory or ''} memory".strip(),
        "left",
        "",
    ):
        table.add_column(name, justify="right" if name else "left")
    for one in search.tried:
        table.add_row(
            f"{one.size:,}", f"{one.global_batch_size:,}" if one.global_batch_size else "", _rate(one), _bar(one, best),
            _gib(one.memory_gib), _gib(one.margin_gib), _remark(one, search),
        )  # fmt: skip
    parts: list[RenderableType] = [Text(), table, Text()]
    parts += _batch_answer(search)
    parts += [Text(f"· {line}") for line in search.advice]
    parts += [Text(note, style="dim") for note in search.notes]
    if search.run_with:
        parts += [Text(), *command_to_copy(search.run_with, "bold")]
    return Group(*parts)


def _batch_answer(search: BatchSearch) -> list[RenderableType]:
    if search.knee is None:
        return [
            Text(
                f"No size leaves {bytes_gib(search.margin_gib)} free. {_sentence(search.ended)}.",
                style="bold yellow",
            )
        ]
    text = Text(f"knee: {search.knee:,}", style="bold green")
    if search.first_too_large is None:
        text.append(f"   largest that was run: {search.largest:,} (memory was not the limit)", style="bold")
    else:
        text.append(f"   largest that leaves {bytes_gib(search.margin_gib)} free: {search.largest:,}", style="bold")
    return [text, Text(_sentence(search.ended), style="dim" if search.complete else "yellow")]


def _remark(one: BatchTried, search: BatchSearch) -> str:
    if not one.trained:
        why = "" if one.outcome is Outcome.OUT_OF_MEMORY else last_line(one.message)
        return f"[yellow]{one.outcome}[/] {escape(why)}"
    if one.margin_gib is not None and one.margin_gib < search.margin_gib:
        return "[yellow]leaves less than the margin[/]"
    names = (("knee", search.knee), ("largest", search.largest), ("the script's own", search.own_size))
    return ", ".join(name for name, size in names if size == one.size)


def loader_view(search: LoaderSearch) -> RenderableType:
    best = _best(search.tried)
    table = FittingTable(box=None, pad_edge=False, header_style="dim")
    for name in ("workers", "prefetch", "samples/s", "", "waits ms", "in workers", ""):
        table.add_column(name, justify="right" if name else "left")
    for one in search.tried:
        table.add_row(
            str(one.workers), str(one.prefetch or ""), _rate(one), _bar(one, best),
            f"{one.loader_ms:.2f}" if one.loader_ms is not None else "", _gib(one.workers_memory_gib),
            _loader_remark(one, search),
        )  # fmt: skip
    parts: list[RenderableType] = [Text(), table, Text(), _loader_answer(search)]
    parts.append(Text(_sentence(search.ended), style="dim" if search.complete else "yellow"))
    parts += [Text(note, style="dim") for note in search.notes]
    if search.words:
        parts += [Text(), *command_to_copy(search.run_with, "bold"), to_copy(search.by_hand, 2, "cyan")]
    return Group(*parts)


def _loader_remark(one: LoaderTried, search: LoaderSearch) -> str:
    if not one.trained:
        return f"[yellow]{escape(last_line(one.message) or one.outcome)}[/]"
    chosen = "[green]chosen[/]" if search.complete and one.words == search.words else ""
    return " ".join(filter(None, ("" if one.words else "the script's own", chosen)))


def _loader_answer(search: LoaderSearch) -> Text:
    if not search.limits:
        return Text("Leave the loader as it is.", style="bold green")
    if not search.complete and len(search.tried) < 2:
        return Text("No answer yet: only the script's own setting was run.", style="bold yellow")
    if not search.words:
        return Text("The script's own setting is within 3 % of the best.", style="bold green")
    gain = f": {search.speedup:.2f}× (one run each)" if search.speedup else ""
    so_far = "" if search.complete else "The best so far: "
    return Text(f"{so_far}{loader_setting(search)}{gain}", style="bold green" if search.complete else "bold yellow")


def loader_setting(search: LoaderSearch) -> str:
    """What the command sets: the prefetch only where it does."""
    queue = f", prefetch {search.prefetch}" if any(word.startswith("prefetch") for word in search.words) else ""
    return counted(search.workers, "worker") + queue


def _best(tried: Sequence[BatchTried | LoaderTried]) -> float:
    return max((one.samples_per_s or 0.0 for one in tried), default=0.0)


def _rate(one: BatchTried | LoaderTried) -> str:
    return f"{one.samples_per_s:,.1f}" if one.samples_per_s is not None else ""


def _bar(one: BatchTried | LoaderTried, best: float) -> str:
    return f"[green]{'█' * round(_BAR * one.samples_per_s / best)}[/]" if one.samples_per_s and best else ""


def _gib(value: float | None) -> str:
    return bytes_gib(value) if value is not None else ""


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
