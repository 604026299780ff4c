"""The sections of a finder's record: every setting that was run as a bar of its throughput, and the one recommended."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from vivace.records.search import BatchSearch, LoaderSearch
from vivace.report.charts.bars import Piece, bar
from vivace.report.common_sections import command_line, machine_section
from vivace.report.figures import amount, bytes_gib, counted, milliseconds
from vivace.report.rendering import render
from vivace.report.search_view import loader_setting

__all__ = ["batch_sections", "batch_title", "loader_sections", "loader_title"]


@dataclass(frozen=True)
class _Row:
    name: str
    figure: str
    remarks: str
    chart: Markup | None


def batch_title(search: BatchSearch) -> str:
    if search.knee is None:
        return "No batch size leaves the margin"
    return f"Batch {search.knee:,}"


def batch_sections(search: BatchSearch, name: str) -> list[Markup]:
    best = max((one.samples_per_s or 0.0 for one in search.tried), default=0.0)
    named = {"knee": search.knee, "largest": search.largest, "the script's own": search.own_size}
    rows = []
    for one in search.tried:
        marks = [mark for mark, size in named.items() if size == one.size and one.trained]
        left = f"{bytes_gib(one.margin_gib)} left" if one.margin_gib is not None else ""
        figure = amount(one.samples_per_s, "samples/s", 4) if one.trained else one.outcome
        style = "after" if "knee" in marks else "before"
        chart = bar([Piece(style, one.samples_per_s or 0.0, figure)], best) if one.trained else None
        rows.append(_Row(f"{one.size:,}", figure, " · ".join(filter(None, [*marks, left, one.message])), chart))
    headline = render(
        "search_headline", title=batch_title(search), what="batch", name=name, search=search, rows=rows,
        command=command_line(search.command), lead=_batch_lead(search), by_hand="", advice=search.advice,
    )  # fmt: skip
    return _with_machine(headline, search)


def _batch_lead(search: BatchSearch) -> str:
    margin = bytes_gib(search.margin_gib)
    if search.knee is None:
        return f"No size leaves {margin} free."
    if search.first_too_large is None:
        largest = f"The largest that was run is {search.largest:,}: memory was not the limit."
    else:
        memory = f"{search.memory} memory" if search.memory else "memory"
        largest = f"The largest that leaves {margin} of {memory} free is {search.largest:,}. All sizes were run."
    return f"The smallest size within 5 % of the best throughput. {largest}"


def loader_title(search: LoaderSearch) -> str:
    if not search.words:
        return "Leave the loader as it is"
    return loader_setting(search)


def loader_sections(search: LoaderSearch, name: str) -> list[Markup]:
    best = max((one.samples_per_s or 0.0 for one in search.tried), default=0.0)
    rows = []
    for one in search.tried:
        chosen = one.words == search.words
        figure = amount(one.samples_per_s, "samples/s", 4) if one.trained else one.outcome
        facts = [
            "" if one.words else "the script's own",
            f"waits {milliseconds(one.loader_ms)} a step" if one.loader_ms is not None else "",
            f"{bytes_gib(one.workers_memory_gib)} in the workers" if one.workers and one.workers_memory_gib else "",
            one.message,
        ]
        chart = bar([Piece("after" if chosen else "before", one.samples_per_s or 0.0, figure)], best)
        title = counted(one.workers, "worker") + (f", prefetch {one.prefetch}" if one.prefetch else "")
        rows.append(_Row(title, figure, " · ".join(filter(None, facts)), chart if one.trained else None))
    headline = render(
        "search_headline", title=loader_title(search), what="loader", name=name, search=search, rows=rows,
        command=command_line(search.command), lead="The smallest setting within 3 % of the best that was run.",
        by_hand=search.by_hand, advice=(),
    )  # fmt: skip
    return _with_machine(headline, search)


def _with_machine(headline: Markup, search: BatchSearch | LoaderSearch) -> list[Markup]:
    machine = machine_section(search.machine, None)
    return [headline, machine] if machine is not None else [headline]
