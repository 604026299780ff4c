"""``check --ranks`` as a person reads it in a terminal. Knows records only. What is predicted is called so."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from vivace.records.equality import EqualityVerdict
from vivace.records.scale_check import Prediction, ScaleCheck, Timed
from vivace.report.fitting import FittingTable
from vivace.report.scaled import facts_lines

__all__ = ["scale_check_view"]


def scale_check_view(check: ScaleCheck) -> RenderableType:
    parts: list[RenderableType] = [Text(), _headline(check), _equality(check), Text(), _sides(check)]
    parts += [Text(), *_exchange(check)]
    lines = facts_lines(check.facts) or ["nothing is gathered, and nothing runs whole"]
    parts += [
        Text(),
        Text("What is not split, and what is gathered", style="bold"),
        *(Text(f"  {line}") for line in lines),
    ]
    if check.memory:
        heading = f"Memory of one rank of {check.ranks}, by arithmetic (GiB; activations come on top)"
        parts += [Text(), Text(heading, style="bold"), _memory(check)]
    parts += [Text(), *_prediction(check)]
    parts += [Text(note, style="yellow") for note in check.notes]
    return Group(*parts)


def _headline(check: ScaleCheck) -> Text:
    if not check.facts.split:
        return Text(
            f"Nothing is split over {check.split.ranks} ranks: every rank would do all of the work.", "bold red"
        )
    text = Text(f"{check.speedup:.2f}× on {check.split.ranks} ranks with {check.mode}", style="bold")
    return text.append(
        f"  ({100 * check.efficiency:.0f} % of {check.split.ranks}×; measured, one run each)", style="dim"
    )


def _equality(check: ScaleCheck) -> Text:
    equality = check.equality
    if equality.verdict is EqualityVerdict.DIFFERENT:
        return Text(f"another training than in one process: {equality.says}", style="bold red")
    if equality.verdict is EqualityVerdict.NOT_COMPARED:
        return Text(f"not compared with one process: {equality.says}", style="yellow")
    return Text(equality.says, style="green")


def _sides(check: ScaleCheck) -> Table:
    table = FittingTable(box=None, pad_edge=False, header_style="dim")
    table.add_column("measured")
    table.add_column("one process", justify="right")
    table.add_column(f"{check.split.ranks} ranks", justify="right")
    one, split = check.one, check.split
    rows: list[tuple[str, float | None, float | None]] = [
        ("samples/s", one.samples_per_s, split.samples_per_s),
        ("step ms (mean)", one.step_ms, split.step_ms),
        *(
            (f"  {phase}", one.phases_ms.get(phase, 0.0), split.phases_ms.get(phase, 0.0))
            for phase in _phases(one, split)
        ),
        ("  of communication: waiting for slower ranks", None, split.waiting_ms),
        ("GPU memory GiB (largest rank)", one.device_memory_gib, split.device_memory_gib),
        ("host memory GiB (largest rank)", one.host_memory_gib, split.host_memory_gib),
    ]
    for name, old, new in rows:
        if old is not None or new is not None:
            table.add_row(name, *("" if value is None else f"{value:.2f}" for value in (old, new)))
    return table


def _phases(*sides: Timed) -> list[str]:
    return [
        phase
        for phase in dict.fromkeys(p for s in sides for p in s.phases_ms)
        if any(s.phases_ms.get(phase) for s in sides)
    ]


def _exchange(check: ScaleCheck) -> list[Text]:
    facts, ranks = check.facts, check.split.ranks
    theory = 2 * (ranks - 1) / ranks * facts.gradient_mib
    sent = "" if facts.sent_mib_per_step is None else f"; handed to exchanges: {facts.sent_mib_per_step:.3g} MiB a step"
    text = f"gradients: {facts.gradient_mib:.3g} MiB; a ring moves {theory:.3g} MiB a rank and step{sent}"
    early = "sent while the backward pass runs" if facts.sent_early else "sent after the backward pass"
    return [Text(f"{text}; {early}")]


def _memory(check: ScaleCheck) -> Table:
    table = FittingTable(box=None, pad_edge=False, header_style="dim")
    for column in ("mode", "parameters", "gradients", "optimizer", "gathered block", "together"):
        table.add_column(column, justify="left" if column == "mode" else "right")
    for one in check.memory:
        figures = (one.parameters_gib, one.gradients_gib, one.states_gib, one.block_gib, one.total_gib)
        table.add_row(one.mode, *(f"{figure:.3g}" for figure in figures))
    return table


def _prediction(check: ScaleCheck) -> list[Text]:
    predicted = check.prediction
    if predicted is None:
        return [Text(f"{check.ranks} ranks: not predicted ({check.why_not_predicted})", style="dim")]
    lines = [
        Text(f"Predicted for {predicted.ranks} ranks on {predicted.network}:", style="bold"),
        _predicted(predicted),
    ]
    return [*lines, *(Text(f"  assumed: {one}", style="dim") for one in predicted.assumptions)]


def _predicted(predicted: Prediction) -> Text:
    exchange = f"  exchange of gradients {predicted.exchange_ms:.3g} ms a step"
    if predicted.step_ms is None or predicted.efficiency is None or predicted.exposed_ms is None:
        return Text(exchange)
    speed = f"step {predicted.step_ms:.3g} ms, {100 * predicted.efficiency:.0f} % of {predicted.ranks}×"
    return Text(f"{exchange}, {predicted.exposed_ms:.3g} ms of it exposed; {speed}")
