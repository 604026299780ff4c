"""A search's record put together by hand."""

from __future__ import annotations

from typing import Any

from vivace.hpo.confirming import compare
from vivace.records.hpo import Arm, Confirmation, Hpo, HpoParameter, HpoTrial


def made_hpo(
    best: tuple[float, ...] = (), own: tuple[float, ...] = (), direction: Any = "min", seen: float = 1.0, **changes: Any
) -> Hpo:
    """Three trials, the first of them the best; with ``best`` and ``own`` also a confirmation."""
    trials = (
        HpoTrial(number=0, state="complete", values={"lr": "0.1", "opt": "sgd"}, metric=seen, seconds=2.0),
        HpoTrial(number=1, state="pruned", values={"lr": "0.5", "opt": "adam"}, metric=9.0, seconds=1.0, readings=2),
        HpoTrial(number=2, state="crashed", values={"lr": "0.9", "opt": "sgd"}, reason="exit code 1: no", seconds=0.5),
    )
    confirmed = Confirmation(
        seeds=len(best), best=Arm(values={"lr": "0.1"}, metric=best), baseline=Arm(values={"lr": "0.3"}, metric=own),
        baseline_is_middle=False, best_seen=seen, best_mean=compare(best, [0.0] * len(best)),
        compared=compare(best, own),
    )  # fmt: skip
    return Hpo(**{
        "name": "train", "command": ("python", "train.py", "--lr", "{lr}"), "metric": "val_loss",
        "direction": direction, "sampler": "tpe", "pruner": "auto", "seed": 0, "workers": 2, "asked_trials": 10,
        "parameters": (
            HpoParameter(name="lr", range="log(0.01,1)", kind="log", importance=0.8),
            HpoParameter(name="opt", range="choice(sgd,adam)", kind="choice", importance=0.2),
        ),
        "trials": trials, "best": 0, "best_command": "python train.py --lr 0.1",
        "confirmation": confirmed if best else None, "complete": True, "wall_s": 2.0, "trial_s": 3.5, **changes,
    })  # fmt: skip
