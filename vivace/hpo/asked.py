"""``Asked``: what a study was asked, kept in its folder for its workers and for ``--resume``."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from vivace.errors import UserError
from vivace.hpo.budget import Budget
from vivace.hpo.space import Choice, Parameter, Real, Space, Value, Whole
from vivace.hpo.template import Template
from vivace.race.targets import Goal
from vivace.tune.options_file import read_options, write_options

__all__ = [
    "FILE",
    "UNBOUNDED_TRIALS",
    "Asked",
    "EngineName",
    "PrunerName",
    "SamplerName",
    "TakenValue",
    "read_asked",
    "write_asked",
]

FILE = "study.json"
UNBOUNDED_TRIALS = 100_000
"""Where a budget alone ends the study."""


class EngineName(StrEnum):
    OPTUNA = "optuna"
    RAY = "ray"
    """Ray Tune runs the trials and ends bad ones; values come from Optuna's samplers all the same."""


class SamplerName(StrEnum):
    TPE = "tpe"
    RANDOM = "random"
    GRID = "grid"
    CMAES = "cmaes"
    GP = "gp"
    QMC = "qmc"


class PrunerName(StrEnum):
    AUTO = "auto"
    """Successive halving where the metric is reported often; else none."""
    ASHA = "asha"
    MEDIAN = "median"
    HYPERBAND = "hyperband"
    NONE = "none"


class TakenValue(StrEnum):
    """Which reading of a trial counts."""

    LAST = "last"
    BEST = "best"


@dataclass(frozen=True)
class Asked:
    """``goal``, ``pattern`` and ``metric_files``: as ``vivace race`` reads them. ``slurm``: options of ``submit``.

    ``defaults=None``: the user named none, and the middle of the space stands for them.
    """

    name: str
    command: tuple[str, ...]
    cwd: str
    goal: str
    reals: tuple[Real, ...] = ()
    wholes: tuple[Whole, ...] = ()
    choices: tuple[Choice, ...] = ()
    order: tuple[str, ...] = ()
    """The parameters' names, as they were given."""
    defaults: dict[str, Value] | None = None
    trials: int = 50
    budget: Budget | None = None
    workers: int = 1
    gpus_per_trial: int = 0
    engine: EngineName = EngineName.OPTUNA
    sampler: SamplerName = SamplerName.TPE
    pruner: PrunerName = PrunerName.AUTO
    taken: TakenValue = TakenValue.LAST
    seed: int = 0
    confirm_seeds: int = 5
    trial_limit_s: float | None = None
    pattern: str | None = None
    metric_files: tuple[str, ...] = ()
    practices: tuple[str, ...] = ()
    storage: str | None = None
    study: str = ""
    """Its name in a database that others use too; else ``name``."""
    slurm: str | None = None
    forgiven: int = 0
    """Trials before this number no longer decide whether the command seems to be wrong: the user resumed."""
    jobs: tuple[str, ...] = ()
    """Slurm jobs that were sent for this study."""

    @property
    def study_name(self) -> str:
        return self.study or self.name

    @property
    def parameters(self) -> list[Parameter]:
        return [*self.reals, *self.wholes, *self.choices]

    @property
    def space(self) -> Space:
        by_name = {parameter.name: parameter for parameter in self.parameters}
        return Space(tuple(by_name[name] for name in self.order))

    @property
    def template(self) -> Template:
        return Template.read(self.command, self.order)

    @property
    def parsed_goal(self) -> Goal:
        return Goal.parse(self.goal)

    @property
    def baseline(self) -> dict[str, Value]:
        """What the best configuration is compared with."""
        return self.defaults if self.defaults is not None else self.space.middle


def write_asked(folder: Path, asked: Asked) -> None:
    write_options(folder / FILE, asked)


def read_asked(folder: Path) -> Asked:
    nothing = UserError(f"{folder} contains no study", hint="vivace hpo --resume vivace-runs/NAME-001")
    asked = read_options(folder / FILE, Asked, nothing)
    if set(asked.order) != {parameter.name for parameter in asked.parameters}:
        raise UserError(f"{folder / FILE} is damaged: its parameters and their order differ", hint="start a new study")
    return asked
