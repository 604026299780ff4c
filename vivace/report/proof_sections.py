"""The sections of a proof: what was won, how to have it, where it comes from, what it costs, why it does no harm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from markupsafe import Markup

from vivace.records.finding import Finding
from vivace.records.measurement import Origin
from vivace.records.proof import Gain, Harm, HarmVerdict, Proof, Rejected
from vivace.report.charts.bars import Piece, bar, span_bar
from vivace.report.charts.curves import curves
from vivace.report.charts.intervals import Axis, interval_chart
from vivace.report.climb import Rung, climb, ratio_with
from vivace.report.common_sections import command_line, findings_section, machine_section, method_section
from vivace.report.conclusions import nothing_sentence, nothing_title
from vivace.report.figures import bytes_gib, counted, milliseconds, plain
from vivace.report.phases import css_class, in_order, phase_name
from vivace.report.proof_view import shown_harm
from vivace.report.rendering import render
from vivace.report.run_folder import RunFolder
from vivace.report.scaled import facts_lines

__all__ = ["proof_sections", "proof_title"]

_HARM_TITLES = {
    HarmVerdict.NOT_COMPARABLE: "Harm to the training: not checked",
    HarmVerdict.OUTSIDE: "Harm to the training",
}


def proof_title(proof: Proof) -> str:
    """What a reader wants to know first."""
    if not proof.practices:
        return nothing_title(proof)
    if proof.speedup.low <= 1:
        return f"{proof.speedup.median:.2f}×, within the noise"
    if proof.speedup.vague:
        return f"{proof.speedup.low:.1f}× to {proof.speedup.high:.1f}× faster"
    return f"{proof.speedup.median:.2f}× faster"


def proof_sections(run: RunFolder, proof: Proof) -> list[Markup]:
    """Sections without content are left out."""
    sections = (
        _headline(run, proof),
        _ranks(proof),
        _recipe(proof),
        _steps(proof),
        _gains(run, proof),
        _losses(proof),
        _costs(proof),
        _by_hand(proof),
        findings_section("For you to decide", proof.proposed, "decide", _step_ms(proof)),
        _left_out(run, proof),
        _findings(run, proof),
        machine_section(proof.machine, _origin(run)),
        method_section(run),
    )
    return [section for section in sections if section is not None]


def _step_ms(proof: Proof) -> float | None:
    return proof.before.step_ms.mean if proof.before and proof.before.step_ms else None


def _origin(run: RunFolder) -> Origin | None:
    return next((trial.measurement.origin for trial in run.trials if trial.measurement), None)


def _headline(run: RunFolder, proof: Proof) -> Markup:
    return render(
        "proof_headline",
        title=proof_title(proof),
        nothing="" if proof.practices else nothing_sentence(proof),
        proof=proof,
        command=command_line(proof.command),
        name=run.folder.resolve().name,
        origin=_origin(run),
        tiles=[tile for tile in _tiles(proof) if tile.after != "–"],
    )


@dataclass(frozen=True)
class _Tile:
    name: str
    unit: str
    before: str
    after: str


def _tiles(proof: Proof) -> list[_Tile]:
    before, after = proof.before, proof.after
    if before is None or after is None:
        return []
    step_before = before.step_ms.mean if before.step_ms else None
    step_after = after.step_ms.mean if after.step_ms else None
    return [
        _Tile("throughput", "samples/s", plain(before.samples_per_s), plain(after.samples_per_s)),
        _Tile("mean step", "ms", plain(step_before), plain(step_after)),
        _Tile("energy", "J/sample", plain(before.joules_per_sample, 3), plain(after.joules_per_sample, 3)),
        _Tile("GPU memory", "", bytes_gib(before.device_memory_gib), bytes_gib(after.device_memory_gib)),
        _Tile("host memory", "", bytes_gib(before.host_memory_gib), bytes_gib(after.host_memory_gib)),
    ]


def _ranks(proof: Proof) -> Markup | None:
    """Of a tune with --ranks: the ranks beside one process."""
    scaled = proof.scaled
    if scaled is None:
        return None
    named = (("the ranks as they are", scaled.over_one), ("with the practices", scaled.with_practices))
    rows = [(name, interval) for name, interval in named if interval is not None]
    return render("proof_ranks", scaled=scaled, rows=rows, facts=facts_lines(scaled.facts))


def _recipe(proof: Proof) -> Markup | None:
    if not proof.run_with:
        return None
    return render("proof_recipe", run_with=proof.run_with, has_lines=bool(_with_lines(proof)))


def _by_hand(proof: Proof) -> Markup | None:
    return render("proof_by_hand", practices=gains) if (gains := _with_lines(proof)) else None


def _with_lines(proof: Proof) -> list[Gain]:
    return [gain for gain in proof.practices if gain.by_hand]


def _steps(proof: Proof) -> Markup | None:
    sides = [
        (name, side)
        for name, side in (("before" if proof.after else "as it is", proof.before), ("after", proof.after))
        if side
    ]
    sides = [(name, side) for name, side in sides if side.phases_ms]
    if not sides:
        return None
    full = max(sum(side.phases_ms.values()) for _, side in sides)
    bars = [
        (
            name,
            sum(side.phases_ms.values()),
            bar(
                [
                    Piece(
                        css_class(phase),
                        side.phases_ms[phase],
                        f"{phase_name(phase)} {milliseconds(side.phases_ms[phase])}",
                    )
                    for phase in in_order(side.phases_ms)
                ],
                full,
            ),
        )
        for name, side in sides
    ]
    seen = in_order({phase for _, side in sides for phase, mean in side.phases_ms.items() if mean > 0})
    rows = [(phase, [side.phases_ms.get(phase, 0.0) for _, side in sides]) for phase in seen]
    return render("proof_steps", bars=bars, rows=rows, names=[name for name, _ in sides])


def _gains(run: RunFolder, proof: Proof) -> Markup | None:
    if not proof.practices:
        return None
    rungs = climb(run.trials, [gain.practice for gain in proof.practices])
    axis = Axis.over(value for gain in proof.practices for value in (gain.alone, gain.last))
    rows = [(gain, _ablation_chart(gain, axis)) for gain in proof.practices]
    return render("proof_gains", waterfall=_waterfall(rungs), rows=rows, ablated=any(chart for _, chart in rows))


def _ablation_chart(gain: Gain, axis: Axis) -> Markup | None:
    if gain.alone is None and gain.last is None:
        return None
    return interval_chart([("alone", gain.alone), ("last", gain.last)], axis)


def _waterfall(rungs: tuple[Rung, ...]) -> list[tuple[str, str, Markup]]:
    """(name, figure, bar) for each row, on one scale."""
    if not rungs:
        return []
    full = max(max(rung.from_ms, rung.to_ms) for rung in rungs)
    rows = [("the script as it is", milliseconds(rungs[0].from_ms), bar([Piece("whole", rungs[0].from_ms, "")], full))]
    for rung in rungs:
        won = rung.from_ms - rung.to_ms
        label = f"{'−' if won >= 0 else '+'}{milliseconds(abs(won))}"
        style = "won" if won >= 0 else "lost"
        rows.append((f"+ {', '.join(rung.added)}", label, span_bar(rung.to_ms, rung.from_ms, full, style, label)))
    rows.append(("all of them", milliseconds(rungs[-1].to_ms), bar([Piece("whole tuned", rungs[-1].to_ms, "")], full)))
    return rows


def _losses(proof: Proof) -> Markup | None:
    before = proof.before.losses if proof.before else ()
    after = proof.after.losses if proof.after else ()
    label = "Training loss over the steps" + (", before and after" if after else "")
    chart, harm = curves(before, after, label), shown_harm(proof)
    if chart is None and harm is None:
        return None
    title = _HARM_TITLES.get(harm.verdict, _no_harm(harm)) if harm else "Losses"
    return render("proof_losses", title=title, chart=chart, harm=harm, before=len(before), after=len(after))


def _no_harm(harm: Harm) -> str:
    return f"No harm seen in {counted(harm.seen_steps, 'step')}" if harm.seen_steps else "No harm seen"


@dataclass(frozen=True)
class _Cost:
    name: str
    before: str
    after: str
    before_bar: Markup
    after_bar: Markup


Words = Callable[[float | None], str]


def _costs(proof: Proof) -> Markup | None:
    costs = [cost for cost in _compared(proof) if cost is not None]
    if not costs and proof.payback is None:
        return None
    has_energy = bool(proof.after and proof.after.joules_per_sample is not None)
    return render("proof_costs", costs=costs, payback=proof.payback, has_energy=has_energy)


def _compared(proof: Proof) -> list[_Cost | None]:
    before, after = proof.before, proof.after
    if before is None or after is None:
        return []
    return [
        _cost("GPU memory, peak", before.device_memory_gib, after.device_memory_gib, bytes_gib),
        _cost("host memory", before.host_memory_gib, after.host_memory_gib, bytes_gib),
        _cost("energy per sample", before.joules_per_sample, after.joules_per_sample, _joules),
        _cost("model FLOP utilisation", before.mfu, after.mfu, _share, full=1.0),
    ]


def _joules(value: float | None) -> str:
    return f"{plain(value, 3)} J"


def _share(value: float | None) -> str:
    return f"{plain(100 * value, 3)} %" if value is not None else "–"


def _cost(name: str, before: float | None, after: float | None, words: Words, full: float = 0.0) -> _Cost | None:
    if before is None or after is None:
        return None
    full = full or max(before, after)
    return _Cost(
        name,
        words(before),
        words(after),
        bar([Piece("before", before, f"before {words(before)}")], full),
        bar([Piece("after", after, f"after {words(after)}")], full),
    )


def _left_out(run: RunFolder, proof: Proof) -> Markup | None:
    if not proof.rejected:
        return None
    return render("proof_left_out", rows=[(rejected, _speed(run, rejected)) for rejected in proof.rejected])


def _speed(run: RunFolder, rejected: Rejected) -> float | None:
    """The record's, else what the trials show: a set that was dropped as a whole has no ratio for each in it."""
    ended = rejected.outcome not in (None, "ok")
    return rejected.ratio if ended or rejected.ratio is not None else ratio_with(run.trials, rejected.practice)


def _findings(run: RunFolder, proof: Proof) -> Markup | None:
    """Each finding with its price and what trying it came to."""
    findings = proof.findings or (run.findings.findings if run.findings else ())
    if not findings:
        return None
    return render("proof_findings", rows=[(finding, *_came_to(finding, run, proof)) for finding in findings])


def _came_to(finding: Finding, run: RunFolder, proof: Proof) -> tuple[float | None, str]:
    """(measured ratio, outcome in words). ``workers=8`` was found as ``workers``."""
    for gain in proof.practices:
        if _name(gain.practice) == _name(finding.practice):
            return gain.alone.median if gain.alone else None, "kept"
    if finding in proof.proposed:
        return None, "for you to decide"
    for rejected in proof.rejected:
        if _name(rejected.practice) == _name(finding.practice):
            return _speed(run, rejected), "left out"
    return None, "not tried"


def _name(word: str) -> str:
    return word.partition("=")[0].replace("-", "_")
