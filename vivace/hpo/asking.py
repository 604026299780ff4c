"""From what was typed to ``Asked``: checked against this machine before anything runs."""

from __future__ import annotations

import math
import os
import secrets
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from vivace.durations import Duration
from vivace.errors import UserError
from vivace.hardware.cgroups import own_limits
from vivace.hardware.cpu import read_cpu
from vivace.hardware.gpu import read_gpus
from vivace.hpo.asked import UNBOUNDED_TRIALS, Asked, EngineName, PrunerName, SamplerName, TakenValue
from vivace.hpo.budget import Budget, BudgetUnit
from vivace.hpo.energy import counters
from vivace.hpo.engine import check_sampler
from vivace.hpo.ray_tune.cluster import check_ray
from vivace.hpo.space import Choice, Real, Whole
from vivace.hpo.template import Template
from vivace.hpo.trained import check_settings, is_training, training_command
from vivace.hpo.written import read_space, sought_in
from vivace.race.metrics.reader import compiled_pattern
from vivace.race.targets import Goal
from vivace.race.watching import MetricSource
from vivace.tune.running import read_words

__all__ = ["Given", "Here", "ask", "resumed", "sought_rate"]

_DEFAULT_TRIALS = 50
_DEFAULT_SEEDS = 5


@dataclass(frozen=True)
class Given:
    """The options as they were typed; None where one was not."""

    params: tuple[str, ...]
    space: Path | None
    metric: str | None
    trials: int | None
    budget: str | None
    workers: int | None
    engine: EngineName
    sampler: SamplerName
    pruner: PrunerName
    defaults: tuple[str, ...]
    confirm_seeds: int | None
    taken: TakenValue
    trial_limit: str | None
    pattern: str | None
    metric_files: tuple[str, ...]
    practices: str
    gpus_per_trial: int | None
    seed: int
    storage: str | None
    slurm: str | None


@dataclass(frozen=True)
class Here:
    """This machine: ``gpus`` as ``CUDA_VISIBLE_DEVICES`` names them."""

    gpus: tuple[str, ...]
    cores: int

    @classmethod
    def look(cls) -> Here:
        found = read_gpus(None, []).gpus
        named = os.environ.get("CUDA_VISIBLE_DEVICES")
        gpus = named.split(",") if named else [str(gpu.index) for gpu in found]
        return cls(tuple(gpus[: len(found)]), max(1, int(read_cpu(own_limits(), []).usable_cores)))

    def notes_before(self, asked: Asked) -> list[str]:
        """What is going to happen, and what it may cost."""
        space = asked.space
        at_most = "" if asked.trials >= UNBOUNDED_TRIALS else f"at most {asked.trials} trials, "
        budget = f"budget {asked.budget}, " if asked.budget is not None else ""
        engine = " in Ray" if asked.engine is EngineName.RAY else ""
        lines = [f"{budget}{at_most}{asked.workers} at a time{engine}, sampler {asked.sampler}, pruner {asked.pruner}"]
        if asked.confirm_seeds:
            own = "your defaults" if asked.defaults is not None else "the middle of the space (no --default)"
            values = ", ".join(f"{name}={text}" for name, text in space.texts(asked.baseline).items())
            within = ", within the budget" if asked.budget is not None else ""
            lines.append(f"then the best and {own}, {values}, over {asked.confirm_seeds} seeds{within}")
        if asked.workers > 1 and not {"folder", "trial"} & asked.template.holes:
            lines.append(f"{asked.workers} trials share this folder: a script that writes files needs {{folder}}")
        if asked.slurm is None and self.gpus and asked.workers * asked.gpus_per_trial > len(self.gpus):
            lines.append(f"there are {len(self.gpus)} GPUs: some trials share one")
        return lines


def sought_rate(given: Given) -> str | None:
    """The parameter whose range is to be found first (``lr=find``), if there is one."""
    names = sought_in(given.params, given.space)
    if len(names) > 1:
        raise UserError(
            f"only one learning rate can be found, not {' and '.join(names)}", hint="give the others a range"
        )
    if names and given.slurm is not None:
        raise UserError(
            f"{names[0]}=find runs the command here, and --slurm says that it belongs into a job",
            hint="vivace submit … --once -- vivace find lr -- COMMAND, then give its range",
        )
    return names[0] if names else None


def ask(
    given: Given, command: Sequence[str], name: str, cwd: Path, here: Here, ranges: Mapping[str, str] | None = None
) -> Asked:
    """``ranges``: of parameters that are written as ``find``."""
    if given.metric is None:
        raise UserError("what is to be optimised?", hint="--metric 'min val_loss', or 'max accuracy'")
    written = read_space(given.params, given.space, given.defaults, ranges)
    space = written.space
    recipe = tuple(command) if is_training(command) else None
    if recipe is not None:
        command = training_command(recipe, space.names)
    Template.read(command, space.names)
    Template.read(given.metric_files, space.names, all_used=False)
    _check_program(command[0], cwd)
    Goal.parse(given.metric)
    MetricSource(given.pattern, given.metric_files)
    if given.pattern is not None:
        compiled_pattern(given.pattern)
    check_sampler(given.sampler, space)
    if given.engine is EngineName.RAY:
        check_ray()
    gpus_per_trial = given.gpus_per_trial if given.gpus_per_trial is not None else min(1, len(here.gpus))
    asked = Asked(
        name=name,
        command=tuple(command),
        cwd=str(cwd),
        goal=given.metric,
        reals=tuple(p for p in space.parameters if isinstance(p, Real)),
        wholes=tuple(p for p in space.parameters if isinstance(p, Whole)),
        choices=tuple(p for p in space.parameters if isinstance(p, Choice)),
        order=space.names,
        defaults=written.defaults,
        gpus_per_trial=gpus_per_trial,
        engine=given.engine,
        sampler=given.sampler,
        pruner=given.pruner,
        taken=given.taken,
        seed=given.seed,
        trial_limit_s=_limit_s(given.trial_limit),
        pattern=given.pattern,
        metric_files=given.metric_files,
        practices=read_words(given.practices),
        storage=_without_password(given.storage),
        study=f"{name}-{secrets.token_hex(4)}" if given.storage is not None else name,
        trials=UNBOUNDED_TRIALS if given.budget is not None else _DEFAULT_TRIALS,
    )
    if recipe is not None:
        check_settings(asked, recipe)
    if given.sampler is SamplerName.GRID:
        asked = replace(asked, trials=space.grid_size)
    return _changed(asked, given, here)


def resumed(asked: Asked, given: Given, here: Here) -> Asked:
    """With what may change: more trials, another budget, other workers."""
    return _changed(asked, given, here)


def _changed(asked: Asked, given: Given, here: Here) -> Asked:
    budget = Budget.parse(given.budget) if given.budget is not None else asked.budget
    if given.trials is not None and asked.sampler is SamplerName.GRID:
        asked = replace(asked, trials=min(given.trials, asked.space.grid_size))
    elif given.trials is not None:
        asked = replace(asked, trials=given.trials)
    if asked.space.size is not None:
        asked = replace(asked, trials=min(asked.trials, asked.space.size))
    seeds = given.confirm_seeds if given.confirm_seeds is not None else asked.confirm_seeds
    if seeds == 1:
        raise UserError("one seed gives no interval", hint="--confirm-seeds 5, or 0 for none")
    slurm = given.slurm if given.slurm is not None else asked.slurm
    _check_budget(budget, asked, here, slurm)
    return replace(asked, budget=budget, workers=given.workers or asked.workers, confirm_seeds=seeds, slurm=slurm)


def _check_budget(budget: Budget | None, asked: Asked, here: Here, slurm: str | None) -> None:
    if budget is None or budget.unit is BudgetUnit.SECONDS:
        return
    if not asked.gpus_per_trial:
        hint = "--budget 2h, or --gpus-per-trial 1 if the trials run on GPUs elsewhere"
        raise UserError(f"a budget of {budget}, but the trials use no GPU", hint=hint)
    if budget.unit is BudgetUnit.JOULES and slurm is None and counters() is None:
        raise UserError("the GPUs here have no energy counter", hint="--budget 20gpuh, or 2h")


def _check_program(program: str, cwd: Path) -> None:
    if "{" not in program and shutil.which(program) is None and shutil.which(str(cwd / program)) is None:
        raise UserError(f"{program} was not found", hint="the first word after -- is the program that every trial runs")


def _limit_s(text: str | None) -> float | None:
    if text is None:
        return None
    seconds = Duration.parse(text, "--trial-limit").seconds
    if seconds is None or not math.isfinite(seconds):
        raise UserError(f"--trial-limit {text!r} is not a time", hint="--trial-limit 20min")
    return seconds


def _without_password(url: str | None) -> str | None:
    """The study's file holds the URL: a password is for the database's own files."""
    if url is not None and urlsplit(url).password:
        raise UserError(
            "--storage holds a password, and would be written to the study's folder",
            hint="leave it out and keep it in ~/.pgpass or PGPASSWORD (PostgreSQL), or in ~/.my.cnf (MySQL)",
        )
    return url
