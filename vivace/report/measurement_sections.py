"""The sections of a measurement: a step as a bar, the figures, the steps one by one, what the host waits for."""

from __future__ import annotations

from markupsafe import Markup

from vivace.records.measurement import Measurement
from vivace.report.charts.bars import Piece, bar
from vivace.report.charts.curves import curves
from vivace.report.common_sections import command_line, machine_section
from vivace.report.exchanges_words import messages_in_words
from vivace.report.figures import bytes_gib, counted, milliseconds, percent, plain
from vivace.report.histogram_section import histogram_section
from vivace.report.ledger_words import largest, shown_rows, sum_in_words
from vivace.report.phases import css_class, in_order, phase_name
from vivace.report.rendering import render
from vivace.report.steadiness import vary_sentence

__all__ = ["measurement_sections", "measurement_title"]


def measurement_title(record: Measurement) -> str:
    if record.step_ms is None:
        return "No step was measured"
    return f"{milliseconds(record.step_ms.mean)} per step"


def measurement_sections(record: Measurement, name: str, headline: bool = True) -> list[Markup]:
    """Sections without content are left out. ``headline`` false: another record has the page's."""
    sections = (
        _headline(record, name) if headline else None,
        _step(record, warn=not headline),
        _ledger(record),
        _curves(record),
        _syncs(record),
        _kernels(record),
        histogram_section(record.histograms) if record.histograms is not None else None,
        machine_section(record.machine, record.origin) if headline else None,
        render("measurement_method", record=record) if headline else None,
    )
    return [section for section in sections if section is not None]


def _headline(record: Measurement, name: str) -> Markup:
    tiles = [(title, value, more) for title, value, more in _tiles(record) if value != "–"]
    return render(
        "measurement_headline",
        title=measurement_title(record),
        record=record,
        name=name,
        command=command_line(record.origin.command),
        tiles=tiles,
        varies=_varies(record),
    )


def _tiles(record: Measurement) -> list[tuple[str, str, str]]:
    device, host, energy = record.memory.device, record.memory.host, record.energy
    detail = record.mfu_detail
    return [
        ("throughput", f"{plain(record.samples_per_s)} samples/s" if record.samples_per_s else "–", _batch(record)),
        ("tokens", f"{plain(record.tokens_per_s)} /s" if record.tokens_per_s else "–", ""),
        ("MFU", percent(record.mfu), detail.against if detail else ""),
        ("GPU memory", bytes_gib(device.reserved_peak_gib) if device else "–", _of_total(record)),
        ("host memory", bytes_gib(host.rss_peak_gib) if host else "–", _children(record)),
        ("energy", f"{plain(energy.joules_per_sample, 3)} J/sample" if energy.joules_per_sample else "–", energy.how),
    ]


def _batch(record: Measurement) -> str:
    between = " over" if record.split else " ×"
    ranks = f"{between} {len(record.ranks)} ranks" if len(record.ranks) > 1 else ""
    return f"batch {record.batch_size}{ranks}" if record.batch_size else ""


def _of_total(record: Measurement) -> str:
    device = record.memory.device
    return f"reserved at peak, of {bytes_gib(device.total_gib)}" if device else ""


def _children(record: Measurement) -> str:
    host = record.memory.host
    return (
        f"and {bytes_gib(host.children_rss_gib)} in {counted(host.children, 'worker')}"
        if host and host.children
        else ""
    )


def _step(record: Measurement, warn: bool) -> Markup | None:
    """``warn``: here that its steps vary too much, for a page whose headline is another record's."""
    phases = [phase for phase in in_order(record.phases_ms) if record.phases_ms[phase].mean > 0]
    if not phases or record.step_ms is None:
        return None
    means = {phase: record.phases_ms[phase].mean for phase in phases}
    pieces = [
        Piece(css_class(phase), mean, f"{phase_name(phase)} {milliseconds(mean)}") for phase, mean in means.items()
    ]
    chart = bar(pieces, sum(means.values()))
    rows = [(phase, record.phases_ms[phase], means[phase] / record.step_ms.mean) for phase in phases]
    return render(
        "measurement_step",
        chart=chart,
        rows=rows,
        record=record,
        varies=_varies(record) if warn else "",
        changes=_changes(record),
        exchanges=[(one, messages_in_words(one)) for one in record.exchanges],
    )


def _changes(record: Measurement) -> list[str]:
    return record.over_time.sentences() if record.over_time is not None else []


def _varies(record: Measurement) -> str:
    return vary_sentence(record.steps_vary) if record.steps_vary is not None else ""


def _curves(record: Measurement) -> Markup | None:
    steps = curves(
        [], [record.series_ms.get("step", ())], "Time of each step, in milliseconds", record.warmup_steps + 1
    )
    losses = curves([], [record.trajectory or record.losses], "Training loss over the steps")
    if steps is None and losses is None:
        return None
    return render("measurement_curves", steps=steps, losses=losses)


def _ledger(record: Measurement) -> Markup | None:
    if record.ledger is None:
        return None
    ledger = record.ledger
    return render(
        "measurement_ledger",
        ledger=ledger,
        total=sum_in_words(ledger),
        rows=shown_rows(ledger),
        largest=largest(ledger),
    )


def _syncs(record: Measurement) -> Markup | None:
    return render("measurement_syncs", syncs=record.syncs) if record.syncs else None


def _kernels(record: Measurement) -> Markup | None:
    profile = record.profile
    if profile is None or not profile.top:
        return None
    return render("measurement_kernels", profile=profile)
