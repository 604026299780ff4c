"""``tune``: baseline, search, proof, in one folder. An interrupted one goes on where it stopped (``resume``)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from rich.markup import escape

from vivace.errors import UserError
from vivace.measure.command import Progress, Sink
from vivace.measure.copied_folder import CopyOptions
from vivace.measure.folder import name_of_command, new_run_folder
from vivace.records.finding import Risk
from vivace.records.proof import Proof
from vivace.tune.attempts import Search
from vivace.tune.bench import Bench, BestSoFar, Interrupted
from vivace.tune.checking import findings_of
from vivace.tune.folder_lock import held
from vivace.tune.options_file import read_options, write_options
from vivace.tune.probing import Causes
from vivace.tune.proving import prove
from vivace.tune.ranks.scaling import prove_first, scaled
from vivace.tune.references import measured
from vivace.tune.same_job import Job, refuse_another_job, this_job
from vivace.tune.searching import baseline_of, search
from vivace.tune.trials import TrialSettings

__all__ = ["Interrupted", "Options", "Tuned", "resume_options", "tune"]

RECORD = "proof.json"
OPTIONS = "tune.json"


@dataclass(frozen=True)
class Options:
    """``steps`` 0: as many as three seconds hold. ``prefix`` stands before the command of every trial."""

    command: tuple[str, ...]
    budget_s: float = 600.0
    steps: int = 0
    rounds: int = 3
    harm_steps: int | None = None
    """Over how many steps harm is looked for at least; None: as the practices need."""
    allow: tuple[str, ...] = ("exact", "rounding")
    timeout_s: float | None = None
    prefix: tuple[str, ...] = ()
    copy: CopyOptions | None = None
    ranks: int = 1
    mode: str = ""
    """With more than one rank, how every trial is split."""
    job: Job | None = None
    """Set when the tune begins."""


@dataclass(frozen=True)
class Tuned:
    proof: Proof
    folder: Path


def tune(
    options: Options, output: Path, name: str | None, resume: Path | None, sink: Sink, progress: Progress,
    say: Callable[[str], None],
) -> Tuned:  # fmt: skip
    """Search and prove. ``say`` gets one line a trial. Raises ``Interrupted`` after Ctrl-C; nothing is lost."""
    _check(options)
    if resume is None:
        options = replace(options, job=this_job(options.command))
    else:
        refuse_another_job(options.job, options.command, in_queue=bool(options.prefix))
    folder = resume or new_run_folder(output, name or name_of_command(options.command))
    with held(folder):
        return _tune(options, folder, sink, progress, say)


def _tune(options: Options, folder: Path, sink: Sink, progress: Progress, say: Callable[[str], None]) -> Tuned:
    write_options(folder / OPTIONS, options)  # with --resume too: another --budget holds from then on
    say(f"  [dim]folder: {escape(str(folder))}[/]")
    settings = TrialSettings(
        steps=options.steps, timeout_s=options.timeout_s, copy=options.copy, ranks=options.ranks, mode=options.mode
    )
    bench = Bench(options.command, folder, options.budget_s, settings, sink, progress, say, options.prefix)
    found: Search | None = None
    try:
        allowed = tuple(Risk(risk) for risk in options.allow)
        sides = 4 if options.mode else 2  # the pairs of the practices, and those of the ranks
        found = baseline_of(bench, allowed, reserve_trials=sides * options.rounds)
        equality = prove_first(bench, found.baseline) if options.mode else None
        search(found)
        proof = prove(bench, found, options.rounds, options.harm_steps)
        if equality is not None:
            practices = proof.speedup if proof.practices else None
            facts = scaled(bench, found.baseline, equality, practices, options.rounds)
            trials = tuple(trial.name for trial in bench.trials)
            proof = proof.model_copy(update={"scaled": facts, "trials": trials, "seconds": bench.used_s})
    except (Interrupted, KeyboardInterrupt):  # during a trial, or between two
        raise Interrupted(folder, _best_so_far(found)) from None
    of_the_baseline = str(Path("trials") / found.baseline.name / "trial.json")
    findings_of(measured(found.baseline), Causes(), of_the_baseline).save(folder / "findings.json")
    proof.save(folder / RECORD)
    return Tuned(proof, folder)


def _best_so_far(found: Search | None) -> BestSoFar | None:
    """None: nothing faster was seen yet."""
    if found is None or not found.words:
        return None
    step, unchanged = measured(found.best).step_ms, measured(found.again).step_ms
    assert step is not None
    assert unchanged is not None
    return BestSoFar(found.words, step.mean, unchanged.mean)


def resume_options(folder: Path) -> Options:
    """What an interrupted tune was asked."""
    nothing = UserError(f"{folder} contains no tune to continue", hint="vivace tune --resume vivace-runs/NAME-001")
    return read_options(folder / OPTIONS, Options, nothing)


def _check(options: Options) -> None:
    if not options.command:
        raise UserError("no command to tune", hint="vivace tune -- python train.py …")
    if not options.budget_s > 0:
        raise UserError(f"--budget must be above 0 minutes, not {options.budget_s / 60:g}")
    if options.rounds < 1:
        raise UserError(f"--rounds must be 1 or more, not {options.rounds}")
    if options.harm_steps is not None and options.harm_steps < 1:
        raise UserError(f"--harm-steps must be 1 or more, not {options.harm_steps}")
    if options.timeout_s is not None and not options.timeout_s > 0:
        raise UserError(f"--timeout must be above 0 seconds, not {options.timeout_s:g}")
    if options.steps < 0:
        raise UserError(f"--steps must be 1 or more, not {options.steps}")
