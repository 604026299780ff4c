"""A proof as a person reads it in a terminal. Called by ``vivace.cli``; knows records only."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from vivace.records.proof import Conclusion, Harm, HarmVerdict, Interval, Proof, Side
from vivace.report.conclusions import nothing_sentence
from vivace.report.figures import counted
from vivace.report.fitting import FittingTable
from vivace.report.scaled import scaled_lines
from vivace.report.to_copy import command_to_copy, indented, to_copy

__all__ = ["harm_headline", "proof_view", "shown_harm"]


def proof_view(proof: Proof) -> RenderableType:
    """To be printed with ``crop=False``: its commands are not broken at the width of the terminal."""
    parts: list[RenderableType] = [Text(), _headline(proof)]
    if proof.scaled is not None:
        parts += [Text(line) for line in scaled_lines(proof.scaled)]
    if proof.practices:
        parts += [Text(), _gains(proof)]
    parts += [Text(), _sides(proof)]
    if (harm := shown_harm(proof)) is not None:
        parts.append(_harm(harm))
    if proof.payback is not None:
        parts.append(Text(_payback(proof)))
    parts += [to_copy(note, style="yellow") for note in proof.notes]  # some hold the command that goes on
    parts += _proposals(proof)
    if proof.practices:
        parts += _what_to_do(proof)
    elif proof.run_with:
        parts += [Text(), Text("Train on the ranks, without editing the script:", style="bold")]
        parts += command_to_copy(proof.run_with)
    return Group(*parts)


def shown_harm(proof: Proof) -> Harm | None:
    """That of a set which was not kept is told only where it is why."""
    kept = bool(proof.practices) or (proof.harm is not None and proof.harm.verdict is HarmVerdict.OUTSIDE)
    return proof.harm if kept else None


def _headline(proof: Proof) -> Text:
    if not proof.practices:
        settled = proof.conclusion not in (Conclusion.NOT_ENOUGH_TIME, Conclusion.UNJUDGED)
        return Text(f"{nothing_sentence(proof)}.", style="bold" if settled else "bold yellow")
    pairs = f"{counted(proof.pairs, 'pair')} of runs"
    if proof.speedup.vague:
        low, high = proof.speedup.low, proof.speedup.high
        text = Text(f"{low:.1f}× to {high:.1f}× faster: the runs differ too much to say more", style="bold yellow")
        return text.append(f"  (95 %, {pairs}; {proof.seconds:.0f} s of trials)", style="dim")
    text = Text(f"{proof.speedup.median:.2f}× faster", style="bold green")
    interval = f"{proof.speedup.low:.2f}–{proof.speedup.high:.2f}"
    text.append(f"  (95 %: {interval}, {pairs}; {proof.seconds:.0f} s of trials)", style="dim")
    return text


def _gains(proof: Proof) -> Table:
    table = FittingTable(box=None, pad_edge=False, header_style="dim")
    runs = " (one run)" if len(proof.practices) > 1 else ""  # a single practice has the paired runs' figure
    table.add_column("practice")
    table.add_column(f"alone{runs}", justify="right")
    table.add_column(f"as the last one{runs}", justify="right")
    table.add_column("risk")
    for gain in proof.practices:
        table.add_row(escape(gain.practice), _ratio(gain.alone), _ratio(gain.last), gain.risk.value)
    return table


def _ratio(interval: Interval | None) -> str:
    return f"{interval.median:.2f}× ({interval.low:.2f}–{interval.high:.2f})" if interval else "not measured"


def _sides(proof: Proof) -> Table:
    table = FittingTable(box=None, pad_edge=False, header_style="dim")
    table.add_column("")
    table.add_column("before" if proof.after is not None else "as it is", justify="right")
    if proof.after is not None:
        table.add_column("after", justify="right")
    before, after = proof.before or Side(), proof.after or Side()
    rows = (
        ("samples/s", before.samples_per_s, after.samples_per_s, ".1f"),
        (
            "step ms (mean)",
            before.step_ms.mean if before.step_ms else None,
            after.step_ms.mean if after.step_ms else None,
            ".2f",
        ),
        ("GPU memory GiB", before.device_memory_gib, after.device_memory_gib, ".2f"),
        ("host memory GiB", before.host_memory_gib, after.host_memory_gib, ".2f"),
        ("joules/sample", before.joules_per_sample, after.joules_per_sample, ".4g"),
    )
    for name, old, new, form in rows:
        if old is not None:
            news = (format(new, form) if new is not None else "",) if proof.after is not None else ()
            table.add_row(name, format(old, form), *news)
    return table


def _harm(harm: Harm) -> Text:
    if harm.verdict is HarmVerdict.NOT_COMPARABLE:
        return Text(f"harm: not checked ({harm.says})", style="yellow")
    if harm.verdict is HarmVerdict.OUTSIDE:
        return Text("harm: ", style="red").append(harm.says, style="dim")
    text = Text(f"{harm_headline(harm)}. ", style="green").append(harm.says, style="dim")
    return text.append(f"\nnot seen: {harm.cannot_see}", style="dim") if harm.cannot_see else text


def harm_headline(harm: Harm) -> str:
    """What was looked at belongs to a verdict of no harm: nobody has seen the whole training."""
    over = f" in {counted(harm.seen_steps, 'step')}" if harm.seen_steps else ""
    return f"no harm seen{over}: {harm.verdict}"


def _payback(proof: Proof) -> str:
    assert proof.payback is not None
    later = f"The tuned job starts {proof.payback.extra_s:.0f} s later"
    if proof.payback.steps is None:
        return f"{later} and never makes up for it."
    return f"{later} and makes up for it after {counted(proof.payback.steps, 'step')}."


def _proposals(proof: Proof) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for finding in proof.proposed:
        parts.append(Text(f"for you to decide: {finding.title} (likely {finding.likely:.2f}×)", style="bold"))
        parts.append(indented(finding.says + (f"; {finding.why_not}" if finding.why_not else "")))
        parts.append(to_copy(finding.by_hand, 6, "cyan"))
    return [Text(), *parts] if parts else []


def _what_to_do(proof: Proof) -> list[RenderableType]:
    parts: list[RenderableType] = [Text(), Text("Train with it, without editing the script:", style="bold")]
    parts += command_to_copy(proof.run_with)
    parts += [Text(), Text("Or add to the script:", style="bold")]
    parts += [to_copy(gain.by_hand, 2, "cyan") for gain in proof.practices]
    return parts
