"""``check``: measure once, let every practice look at the evidence, tell the causes of waiting apart, save findings."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

from vivace.measure.command import Progress, Sink, nowhere
from vivace.measure.folder import name_of_command, new_run_folder
from vivace.measure.measuring import Measured, Request, measure
from vivace.practices.engine.loaders import most_saved_ms, waited_for
from vivace.practices.engine.registry import split_word
from vivace.records.finding import Finding, Findings, Unexplained, Verdict
from vivace.records.measurement import Measurement
from vivace.records.trial import Outcome, Trial
from vivace.tune.accounting import unexplained_time
from vivace.tune.bench import Interrupted
from vivace.tune.diagnosis import (
    SMALLEST_WORTH,
    by_likely,
    diagnose,
    is_recommended,
    likely_together,
    together,
    worth_alone,
)
from vivace.tune.probing import Cause, Causes, RunProbe, probe
from vivace.tune.trials import TrialSettings, run_trial

__all__ = ["Checked", "check", "findings_of"]

RECORD = "findings.json"
_PROBE_STEPS = 15


@dataclass(frozen=True)
class Checked:
    """``findings`` is None when nothing could be measured; ``measured`` then says why."""

    findings: Findings | None
    measured: Measured
    folder: Path
    interrupted: bool = False
    """Ctrl-C ended the differential runs; the findings of the first run are there."""


def check(request: Request, probes: bool, sink: Sink, progress: Progress) -> Checked:
    folder = new_run_folder(request.output, request.name or name_of_command(request.command))
    measured = measure(replace(request, folder=folder, notices_files=True, repeated=probes), sink, progress)
    record = measured.measurement
    if record is None or record.step_ms is None:
        return Checked(None, measured, folder)
    causes = Causes()
    interrupted = False
    if probes and record.status == "complete":
        try:
            causes = probe(record, _probe_runner(request, folder, progress))
        except (Interrupted, KeyboardInterrupt):
            interrupted = True
    findings = findings_of(record, causes, str(folder / "measurement.json"), interrupted)
    findings.save(folder / RECORD)
    return Checked(findings, measured, folder, interrupted)


def _probe_runner(request: Request, folder: Path, progress: Progress) -> RunProbe:
    settings = TrialSettings(
        steps=min(_PROBE_STEPS, request.steps), timeout_s=request.timeout_s, seed_offset=None, copy=request.copy
    )

    def run(word: str) -> Trial:
        trial = run_trial(request.command, (word,), folder / "probes" / word[6:], settings, nowhere, progress)
        if trial.outcome is Outcome.INTERRUPTED:
            raise Interrupted(folder)
        return trial

    return run


def findings_of(record: Measurement, causes: Causes, path: str, interrupted: bool = False) -> Findings:
    found = tuple(_with_cause(finding, causes.told, record) for finding in diagnose(record, causes.probed))
    found = by_likely(found)
    recommended = tuple(finding for finding in found if is_recommended(finding))
    unexplained = unexplained_time(record, found, causes.told) if record.status == "complete" else None
    return Findings(
        measurement=path,
        findings=recommended,
        unlikely=tuple(finding for finding in found if finding not in recommended),
        verdict=_verdict(recommended, unexplained, record),
        unexplained=unexplained,
        likely=likely_together(recommended, record),
        worth=together(recommended, record, unexplained.ms if unexplained is not None else 0.0),
        ledger=record.ledger,
        cause=causes.told[0].name if causes.told else None,
        incomplete=_what_was_not_seen(record, interrupted),
        notes=tuple(cause.says for cause in causes.told),
    )


def _what_was_not_seen(record: Measurement, interrupted: bool) -> str | None:
    if interrupted:
        return "Ctrl-C ended the differential runs, so the causes of waiting are not separated"
    if record.status == "complete":
        return None
    kernels = "" if record.profile is not None else ", and no kernels were profiled"
    return f"the run ended after {record.steps} timed steps{kernels}; most findings need both"


def _verdict(found: tuple[Finding, ...], unexplained: Unexplained | None, record: Measurement) -> Verdict:
    if any(finding.worth >= SMALLEST_WORTH for finding in found):
        return Verdict.IMPROVABLE
    if record.status != "complete" or record.contradictions:
        return Verdict.UNKNOWN
    return Verdict.TUNED if unexplained is None else Verdict.UNEXPLAINED


def _with_cause(finding: Finding, causes: tuple[Cause, ...], record: Measurement) -> Finding:
    """A differential run measures what the loader costs better than the wait does: workers also take the CPU's time."""
    data = next((cause for cause in causes if cause.name == "data"), None)
    loader = waited_for(record)
    if data is None or finding.practice != "workers" or loader is None:
        return finding
    if not loader.num_workers or record.inputs_vary:  # in the loop all of it was the wait; new shapes cost time too
        return finding
    exposed = min(data.exposed_ms, _most_saved_ms(finding, record))
    if exposed <= finding.exposed_ms:
        return finding
    evidence = {**finding.evidence, "same_batch_saves_ms": round(data.exposed_ms, 3)}
    worth = worth_alone(finding.practice, exposed, record)
    return finding.model_copy(update={"exposed_ms": exposed, "worth": worth, "evidence": evidence})


def _most_saved_ms(finding: Finding, record: Measurement) -> float:
    """By the number of workers that it proposes, if it does."""
    loader, workers = waited_for(record), split_word(finding.setting or "")[1]
    return most_saved_ms(record, loader, int(workers)) if loader is not None and workers else math.inf
