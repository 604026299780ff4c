"""From charges to what the command is told: time per step by line, phase and kind of work.

Lines come from steps with a sampler alone. Which part of a line was spent inside operators comes from other steps, in
which torch's profiler ran beside a sampler: only shares are taken from those, because the profiler slows them down.
"""

from __future__ import annotations

import linecache
from collections.abc import Sequence
from types import CodeType
from typing import Any, NamedTuple

from vivace.measure.inside.lines.bytecode import line_of, lines_that_may_have
from vivace.measure.inside.lines.charging import Charged, Charges, Segment, charge
from vivace.measure.inside.lines.names import library_name, short_place
from vivace.measure.inside.lines.sampler import LineSampler
from vivace.measure.inside.lines.samples import Stack
from vivace.measure.inside.places import is_torch
from vivace.measure.inside.steps.recorder import Recorder, host_marks
from vivace.measure.inside.steps.timeline import VALIDATION, split
from vivace.protocol.sampling import SeenLine, SeenSampling, SeenThread, SeenWorkers

__all__ = ["WorkShares", "describe", "idle_lines", "lines_of", "phases_since", "work_shares"]

_FEWEST = 5  # samples of a line: with fewer, its phase tells
_MOST_LINES = 400
_CODE = 120  # characters
_MOST_THREADS = 8
_WAITS = ("threading.", "queue.", "selectors.", "socket.", "multiprocessing.connection.", "concurrent.futures.thread.")


class WorkShares(NamedTuple):
    """Which part of the time was spent inside operators, by family."""

    of_line: dict[tuple[CodeType | None, int, str], dict[str, float]]
    """By code, line and phase."""
    of_phase: dict[str, dict[str, float]]

    def of(self, code: CodeType | None, line: int, phase: str) -> dict[str, float]:
        found = self.of_line.get((code, line, phase))
        return found if found is not None else self.of_phase.get(phase, {})


def phases_since(recorder: Recorder, first_mark: int) -> list[Segment]:
    """From a mark that ended a step on: what it says is over."""
    (_code, zero_ns, event, _extra), *marks = recorder.marks[first_mark:]
    spans = split(host_marks([("open", zero_ns, event, None), *marks])).spans
    return [(zero_ns + int(1e6 * a), zero_ns + int(1e6 * b), phase) for a, b, phase in spans]


def work_shares(sampler: LineSampler, phases: Sequence[Segment], operators: Sequence[Segment]) -> WorkShares:
    charges = charge(sampler.samples, sampler.collections, sampler.began_ns, sampler.period_ns, phases, operators)
    by_line: dict[tuple[CodeType | None, int, str], Charged] = {}
    by_phase: dict[str, Charged] = {}
    for (stack, phase), one in charges.lines.items():
        _add(by_line.setdefault((stack.code, _line(stack), phase), Charged()), one)
        _add(by_phase.setdefault(phase, Charged()), one)
    return WorkShares(
        {key: _shares(one) for key, one in by_line.items() if one.samples >= _FEWEST},
        {phase: _shares(one) for phase, one in by_phase.items()},
    )


def _add(to: Charged, one: Charged) -> None:
    to.ns += one.ns
    to.samples += one.samples
    for family, ns in one.by_work.items():
        to.by_work[family] = to.by_work.get(family, 0) + ns


def _shares(one: Charged) -> dict[str, float]:
    total = max(one.ns, sum(one.by_work.values())) or 1
    return {family: ns / total for family, ns in one.by_work.items()}


def describe(
    sampler: LineSampler,
    phases: Sequence[Segment],
    steps: int,
    shares: WorkShares | None,
    workers: SeenWorkers | None = None,
    idle: Sequence[SeenLine] = (),
) -> SeenSampling:
    """``phases``: of the steps that were sampled."""
    charges = charge(sampler.samples, sampler.collections, sampler.began_ns, sampler.period_ns, phases)
    lines = lines_of(charges, steps, shares)
    validation_ms = sum(one.ns for (_, phase), one in charges.lines.items() if phase == VALIDATION) / 1e6 / steps
    return SeenSampling(
        sampler=sampler.how,
        why_no_timer=sampler.why_no_timer,
        period_ms=sampler.period_ns / 1e6,
        steps=steps,
        step_ms=(sampler.ended_ns - sampler.began_ns - charges.own_ns) / 1e6 / steps - validation_ms,
        own_ms=charges.own_ns / 1e6 / steps,
        gc_ms=charges.gc_ns / 1e6 / steps,
        gc_runs=charges.gc_runs / steps,
        validation_ms=validation_ms,
        samples=len(sampler.samples),
        operators_seen=shares is not None,
        others=_others(sampler),
        workers=workers,
        idle=list(idle),
        lines=sorted(lines, key=lambda line: -line.ms)[:_MOST_LINES],
    )


def idle_lines(sampler: LineSampler, phases: Sequence[Segment], gaps: Sequence[Segment], steps: int) -> list[SeenLine]:
    """By line, phase and whose fault: how long the GPU had nothing to do while the host was there, per step."""
    charges = charge(sampler.samples, sampler.collections, sampler.began_ns, sampler.period_ns, phases, gaps)
    found = []
    for (stack, phase), one in charges.lines.items():
        place = _place(stack, late=False)
        found += [
            SeenLine(**place, phase=phase or "other", work=whose, ms=ns / 1e6 / steps)
            for whose, ns in one.by_work.items()
        ]
    return sorted(found, key=lambda line: -line.ms)[:_MOST_LINES]


def lines_of(charges: Charges, steps: int, shares: WorkShares | None) -> list[SeenLine]:
    merged: dict[tuple[object, ...], SeenLine] = {}
    for (stack, phase), one in charges.lines.items():
        place = _place(stack, one.late_ns > one.ns / 2)
        for work, share in _split(stack, phase, shares):
            line = SeenLine(
                **place,
                phase=phase or "other",
                work=work,
                ms=share * one.ns / 1e6 / steps,
                waiting_ms=share * one.waiting_ns / 1e6 / steps,
                no_core_ms=share * one.no_core_ns / 1e6 / steps,
                samples=share * one.samples,
            )
            key = (
                line.file,
                line.first_line,
                line.line,
                line.via,
                line.near,
                line.leaf,
                line.ours,
                line.phase,
                line.work,
            )
            merged[key] = _together(merged[key], line) if key in merged else line
    return list(merged.values())


def _together(a: SeenLine, b: SeenLine) -> SeenLine:
    sums = {name: getattr(a, name) + getattr(b, name) for name in ("ms", "waiting_ms", "no_core_ms", "samples")}
    return SeenLine(**{**a.__dict__, **sums})


def _split(stack: Stack, phase: str, shares: WorkShares | None) -> list[tuple[str, float]]:
    found = shares.of(stack.code, _line(stack), phase) if shares is not None else {}
    return [*found.items(), ("", max(0.0, 1 - sum(found.values())))]


def _others(sampler: LineSampler) -> list[SeenThread]:
    """Threads that run Python beside the training's. What only waits in Python's own library is left out."""
    found: dict[tuple[str, int], SeenThread] = {}
    for stack, looks in sampler.others.items():
        if library_name(stack.leaf).startswith(_WAITS) or stack.ours:
            continue
        code, at = (stack.code, stack.at) if stack.code is not None else (stack.near, stack.near_at)
        if code is None:
            continue
        line = line_of(code, at)
        share = looks / max(1, sampler.looks_beside)
        before = found.get((code.co_filename, line))
        found[code.co_filename, line] = SeenThread(
            file=code.co_filename,
            line=line,
            code=linecache.getline(code.co_filename, line).strip()[:_CODE],
            leaf=library_name(stack.leaf),
            share=share + (before.share if before is not None else 0.0),
        )
    return sorted(found.values(), key=lambda one: -one.share)[:_MOST_THREADS]


def _line(stack: Stack) -> int:
    return line_of(stack.code, stack.at) if stack.code is not None else 0


def _place(stack: Stack, late: bool) -> dict[str, Any]:
    """``late``: most of the time came before samples that something had kept waiting."""
    code = stack.code
    near = ""
    if stack.near is not None and stack.near is not code:
        near = short_place(stack.near, line_of(stack.near, stack.near_at))
    beneath = {
        "via": library_name(stack.via) if stack.via is not None else "",
        "near": near,
        "leaf": library_name(stack.leaf) if stack.leaf is not code else "",
        "leaf_in_torch": is_torch(stack.leaf.co_filename),
        "ours": stack.ours,
        "late": late,
    }
    if code is None:
        return beneath
    first, last = lines_that_may_have(code, stack.at) if late else (_line(stack),) * 2
    text = linecache.getline(code.co_filename, last).strip()[:_CODE]
    return {
        "file": code.co_filename, "line": last, "first_line": first, "code": text,
        "function": getattr(code, "co_qualname", code.co_name), **beneath,
    }  # fmt: skip
