"""Hands the study to Optuna: distributions, samplers, pruners. All of vivace that knows their names."""

from __future__ import annotations

import importlib.util
import io
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np

from vivace.errors import UserError
from vivace.hpo.asked import Asked, PrunerName, SamplerName
from vivace.hpo.pruning import KEPT, first_look
from vivace.hpo.space import Choice, Parameter, Real, Space
from vivace.race.targets import Direction

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution
    from optuna.pruners import BasePruner
    from optuna.samplers import BaseSampler
    from optuna.storages import BaseStorage

__all__ = ["check_sampler", "distributions", "make_pruner", "make_sampler", "open_study"]

_STARTUP_TRIALS = 10  # random ones before a model is trusted; Optuna's own default for TPE
_NEEDS = {
    SamplerName.CMAES: ("cmaes",),
    SamplerName.GP: ("scipy", "torch"),
    SamplerName.QMC: ("scipy",),
}


def distributions(space: Space) -> dict[str, BaseDistribution]:
    return {parameter.name: _distribution(parameter) for parameter in space.parameters}


def _distribution(parameter: Parameter) -> BaseDistribution:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(parameter, Choice):
        return CategoricalDistribution(parameter.options)
    if isinstance(parameter, Real):
        return FloatDistribution(parameter.low, parameter.high, log=parameter.log)
    return IntDistribution(parameter.low, parameter.high, log=parameter.log, step=parameter.step)


def check_sampler(sampler: SamplerName, space: Space) -> None:
    for package in _NEEDS.get(sampler, ()):
        if importlib.util.find_spec(package) is None:
            raise UserError(f"--sampler {sampler} needs {package}", hint=f"pip install {package}, or --sampler tpe")
    if sampler is SamplerName.CMAES and all(isinstance(parameter, Choice) for parameter in space.parameters):
        raise UserError("--sampler cmaes needs a parameter that is a number", hint="--sampler tpe")


def make_sampler(name: SamplerName, study_seed: int, number: int) -> BaseSampler:
    """For the trial of that number: what it draws follows from the study's seed and from what is known by then,
    whichever worker asks, and no two trials draw alike."""
    from optuna import samplers

    seed = int(np.random.SeedSequence([study_seed, number]).generate_state(1)[0])
    if name in (SamplerName.RANDOM, SamplerName.GRID):  # the points of a grid are queued when the study begins
        return samplers.RandomSampler(seed=seed)
    if name is SamplerName.TPE:
        return samplers.TPESampler(seed=seed, n_startup_trials=_STARTUP_TRIALS)
    if name is SamplerName.GP:
        return samplers.GPSampler(seed=seed, n_startup_trials=_STARTUP_TRIALS)
    if name is SamplerName.CMAES:
        return _careful_cmaes()(seed=seed, n_startup_trials=_STARTUP_TRIALS, warn_independent_sampling=False)
    # A quasi-random sequence is one for all workers; Optuna counts its points in the study.
    independent = samplers.RandomSampler(seed=seed)
    return samplers.QMCSampler(
        scramble=True, seed=study_seed, independent_sampler=independent, warn_independent_sampling=False
    )


def make_pruner(name: PrunerName, length: int | None = None) -> BasePruner:
    """``length``: the reports of a whole trial, once known. ``pruning.may_prune`` decides whether it is asked at all.

    Successive halving looks at a ninth and at a third of a trial, and lets the best third go on each time: a study then
    takes about a quarter of what whole trials would. Optuna's own setting begins at the first report and keeps a
    fourth, which prunes most trials by their first moments.
    """
    from optuna import pruners

    if name is PrunerName.NONE:
        return pruners.NopPruner()
    if name is PrunerName.MEDIAN:
        return pruners.MedianPruner(n_startup_trials=_STARTUP_TRIALS)
    if name is PrunerName.HYPERBAND:
        return pruners.HyperbandPruner()
    return pruners.SuccessiveHalvingPruner(min_resource=first_look(length or 1), reduction_factor=KEPT)


def open_study(storage: BaseStorage, name: str, asked: Asked) -> Study:
    """The study of that name, made if there is none: two processes may try at once."""
    import optuna

    minimize = asked.parsed_goal.direction is Direction.MIN
    return optuna.create_study(
        storage=storage, study_name=name, direction="minimize" if minimize else "maximize", load_if_exists=True,
        pruner=make_pruner(asked.pruner), sampler=make_sampler(asked.sampler, asked.seed, 0),
    )  # fmt: skip


def _careful_cmaes() -> type[Any]:
    """Optuna keeps the state of CMA-ES as a pickle in the study. A study may come from someone else: only numbers and
    the optimizer itself are taken out of it."""
    from optuna.samplers import CmaEsSampler

    class CarefulCmaEs(CmaEsSampler):
        def _restore_optimizer(self, completed_trials: Any) -> Any:
            for trial in reversed(completed_trials):
                parts = {k: v for k, v in trial.system_attrs.items() if k.startswith(self._attr_key_optimizer)}
                if parts:
                    data = bytes.fromhex(self._concat_optimizer_attrs(parts))
                    return _NumbersOnly(io.BytesIO(data)).load()
            return None

    return CarefulCmaEs


class _NumbersOnly(pickle.Unpickler):
    _ALLOWED = frozenset({
        ("cmaes._cma", "CMA"), ("numpy", "ndarray"), ("numpy", "dtype"),
        ("numpy._core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "scalar"),
        ("numpy.core.multiarray", "_reconstruct"), ("numpy.core.multiarray", "scalar"),
        ("numpy._core.numeric", "_frombuffer"), ("numpy.core.numeric", "_frombuffer"),
        ("numpy.random._pickle", "__randomstate_ctor"), ("numpy.random._pickle", "__bit_generator_ctor"),
        ("numpy.random._mt19937", "MT19937"), ("numpy.random.mtrand", "RandomState"),
        ("numpy.random.bit_generator", "__pyx_unpickle_SeedSequence"), ("numpy.random.bit_generator", "SeedSequence"),
    })  # fmt: skip

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._ALLOWED:
            raise UserError(f"the study holds something that is no state of CMA-ES ({module}.{name})")
        return super().find_class(module, name)
