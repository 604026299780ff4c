"""Records as a person reads them in a terminal. Called by ``vivace.cli``; knows records only."""

from __future__ import annotations

import os

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from vivace.records.measurement import Measurement
from vivace.records.waits import waits_in_words
from vivace.report.exchanges_words import exchanges_in_words
from vivace.report.figures import counted
from vivace.report.fitting import FittingTable
from vivace.report.histograms_view import histograms_view
from vivace.report.ledger_view import ledger_view
from vivace.report.phases import TERMINAL_COLOURS, phase_name
from vivace.report.steadiness import vary_sentence

__all__ = ["measurement_view"]

_BAR_WIDTH = 72
_WORTH_A_WORD = 0.005  # of the tokens: less would read 0 %


def measurement_view(record: Measurement, folder: str) -> RenderableType:
    """The step as a bar of its parts, then the figures, then what to look at."""
    parts: list[RenderableType] = [Text()]
    if record.status == "partial":
        parts.append(Text(f"PARTIAL: {record.reason}", style="bold yellow"))
    parts += [Text(f"CONTRADICTION: {one.says}.", style="bold red") for one in record.contradictions]
    if record.step_ms is None:
        parts.append(Text(f"no step was measured; the record is in {folder}"))
        return Group(*parts)
    parts.append(_headline(record))
    if record.steps_vary is not None:
        parts.append(Text(f"{vary_sentence(record.steps_vary)}.", style="yellow"))
    parts += [_Bar(record), _phase_table(record)]
    if record.ledger is not None:
        parts.append(ledger_view(record.ledger))
    parts.append(_figures(record))
    if record.syncs:
        parts.append(_syncs(record))
    if record.histograms is not None:
        parts.append(histograms_view(record.histograms))
    if record.over_time is not None:
        parts += [Text(f"{text}.", style="yellow") for text in record.over_time.sentences()]
    parts += [Text(note, style="dim") for note in record.notes]
    if record.written_files is not None:
        parts.append(Text(f"{record.written_files.sentence()}; --in-copy leaves it as it is", style="yellow"))
    parts.append(Text(f"record: {os.path.join(folder, 'measurement.json')}", style="dim"))
    return Group(*parts)


def _headline(record: Measurement) -> Text:
    assert record.step_ms is not None
    where = f"{len(record.ranks)} ranks, " if len(record.ranks) > 1 else ""
    device = ", ".join(sorted(set(record.devices))) or (record.machine.cpu.model or "CPU")
    step, warmup = record.step_ms, f"{counted(record.steps, 'step')} after {record.warmup_steps} of warm-up"
    text = Text(f"{step.mean:.2f} ms per step", style="bold")
    text.append(f"  (mean of {warmup}; {where}{device})", style="dim")
    text.append(f"\ntypical step: {step.median:.2f} ms  (median; 10–90 %: {step.p10:.2f}–{step.p90:.2f})", style="dim")
    return text


class _Bar:
    """The bar of a step, no wider than the terminal."""

    def __init__(self, record: Measurement) -> None:
        self.record = record

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        yield step_bar(self.record, min(_BAR_WIDTH, options.max_width))


def step_bar(record: Measurement, width: int = _BAR_WIDTH) -> Text:
    """One coloured block per phase, as long as its share of the mean step; shares add up to the whole bar."""
    means = {phase: figures.mean for phase, figures in record.phases_ms.items()}
    total = sum(means.values()) or 1.0
    bar, drawn, reached = Text(), 0, 0.0
    for phase, mean in means.items():
        reached += mean
        end = round(width * reached / total)
        bar.append("█" * (end - drawn), style=TERMINAL_COLOURS.get(phase, "white"))
        drawn = end
    return bar


def _phase_table(record: Measurement) -> Table:
    assert record.step_ms is not None
    table = FittingTable(box=None, pad_edge=False, show_edge=False, header_style="dim")
    table.add_column("part of a step")
    for column in ("mean ms", "share", "median", "10 %", "90 %"):
        table.add_column(column, justify="right")
    for phase, figures in record.phases_ms.items():
        if figures.mean == 0:
            continue
        name = Text("■ ", style=TERMINAL_COLOURS.get(phase, "white")).append(phase_name(phase), style="default")
        share = figures.mean / record.step_ms.mean if record.step_ms.mean else 0.0
        table.add_row(
            name,
            f"{figures.mean:.2f}",
            f"{share:.1%}",
            f"{figures.median:.2f}",
            f"{figures.p10:.2f}",
            f"{figures.p90:.2f}",
        )
    return table


def _figures(record: Measurement) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False, show_edge=False)
    table.add_column(style="dim")
    table.add_column()
    table.add_row("", "")
    for name, value in _rows(record):
        table.add_row(name, value)
    return table


def _rows(record: Measurement) -> list[tuple[str, str]]:
    rows = [
        ("throughput", _throughput(record)),
        ("MFU", _mfu(record)),
        ("memory", _memory(record)),
        *_rank_memory(record),
        ("energy", _energy(record)),
    ]
    profile = record.profile
    if profile is not None and profile.busy_share is not None:
        rows.append(
            (
                "GPU",
                f"busy {profile.busy_share:.0%} of the time, {profile.kernels_per_step or 0:.0f} kernels per step, "
                f"tensor cores {profile.tensor_core_share or 0:.0%} of kernel time (under the profiler)",
            )
        )
    if profile is not None and profile.idle_during_ms and profile.idle_ms_per_step:
        parts = waits_in_words(profile.idle_during_ms, profile.idle_ms_per_step)
        rows.append(("GPU waits", f"{profile.idle_ms_per_step:.1f} ms per step: {', '.join(parts)}"))
    if record.waiting_for_ranks_ms is not None and (spent := record.phases_ms.get("communication")) and spent.mean:
        rows.append(("communication", _communication(spent.mean, record.waiting_for_ranks_ms, len(record.ranks))))
    if by_dimension := exchanges_in_words(record.exchanges):
        rows.append(("by dimension", by_dimension))
    if record.validation.runs:
        rows.append(
            (
                "validation",
                f"{record.validation.total_ms / 1e3:.2f} s in {record.validation.batches} batches, not in the step",
            )
        )
    if record.skipped_steps:
        rows.append(
            ("skipped", f"{counted(record.skipped_steps, 'step')} left out by the GradScaler (inf or NaN gradients)")
        )
    if record.losses and record.losses[0] is not None and record.losses[-1] is not None:
        rows.append(("loss", f"{record.losses[0]:.4g} → {record.losses[-1]:.4g}"))
    return rows


def _communication(spent_ms: float, waiting_ms: float, ranks: int) -> str:
    exchange = f"{spent_ms - waiting_ms:.1f} ms per step for the exchange that is not hidden"
    return f"{exchange}, {waiting_ms:.1f} ms waiting for the slowest rank (mean of {ranks} ranks)"


def _throughput(record: Measurement) -> str:
    if record.missing_ranks:
        return "unknown: not every rank reported"
    if record.samples_per_s is None:
        return "unknown: no batch size could be read from the inputs"
    text = f"{record.samples_per_s:,.1f} samples/s"
    if record.tokens_per_s:
        padding = record.structure.padding_share
        text += f", {record.tokens_per_s:,.0f} tokens/s" + (
            f" ({padding:.0%} of them padding)" if padding and padding >= _WORTH_A_WORD else ""
        )
    text += f"  (batch {record.batch_size}"
    if record.split:
        text += f", split over {len(record.ranks)} ranks"
    elif len(record.ranks) > 1:
        text += f" × {len(record.ranks)} ranks = {record.global_batch_size}"
    if record.micro_batches and record.micro_batches >= 1.5 and record.optimizers <= 1:
        text += f", in {record.micro_batches:.0f} micro-batches"
    return text + ")"


def _mfu(record: Measurement) -> str:
    if record.contradictions:
        return "not shown: the counted arithmetic is not what ran"
    if record.mfu_detail is None:
        return "unknown"
    detail = record.mfu_detail
    return f"{detail.value:.1%}  of {detail.peak_tflops:.3g} TFLOP/s: {detail.against}"


def _memory(record: Measurement) -> str:
    pieces = []
    if device := record.memory.device:
        pieces.append(
            f"GPU peak {device.allocated_peak_gib:.2f} GiB allocated, {device.reserved_peak_gib:.2f} reserved "
            f"of {device.total_gib:.1f}"
        )
        if device.alloc_retries:
            pieces.append(f"{device.alloc_retries} allocation retries")
    if host := record.memory.host:
        pieces.append(f"host {host.rss_gib:.2f} GiB + {host.children_rss_gib:.2f} in {host.children} child processes")
    return "; ".join(pieces) or "not measured"


def _rank_memory(record: Measurement) -> list[tuple[str, str]]:
    """The smallest and the largest rank; nothing to add where there is one."""
    peaks = [
        (rank.memory.reserved_peak_gib if rank.memory is not None else rank.host_peak_gib, rank.rank)
        for rank in record.ranks
    ]
    known = sorted((gib, rank) for gib, rank in peaks if gib is not None)
    if len(known) < 2:
        return []
    (least, first), (most, last) = known[0], known[-1]
    return [("memory of ranks", f"{least:.2f} GiB (rank {first}) to {most:.2f} GiB (rank {last}), at peak")]


def _energy(record: Measurement) -> str:
    energy = record.energy
    if not energy.measured or energy.joules_per_step is None or energy.average_w is None:
        return energy.how
    per_sample = f", {energy.joules_per_sample:.3g} J/sample" if energy.joules_per_sample else ""
    peak = f", peak {energy.peak_w:.0f} W" if energy.peak_w else ""
    return f"{energy.joules_per_step:.3g} J/step{per_sample}, average {energy.average_w:.0f} W{peak}  ({energy.how})"


def _syncs(record: Measurement) -> Table:
    table = FittingTable(box=None, pad_edge=False, show_edge=False, header_style="dim")
    table.add_column("host waits for the GPU at")
    table.add_column("per step", justify="right")
    table.add_column("")
    for sync in record.syncs[:6]:
        table.add_row(
            escape(f"{os.path.relpath(sync.file)}:{sync.line}"), f"{sync.per_step:.1f}", escape(sync.via or sync.code)
        )
    return table
