"""First steps made by hand, for tests: a gradient, the update that plain SGD makes of it, one forward."""

from __future__ import annotations

from typing import Any

import numpy as np
from practices.evidence import measurement

from vivace.records.first_steps import FirstStep, FirstSteps, Forward
from vivace.records.measurement import Measurement

__all__ = ["GRADIENT", "noisy", "run", "step"]

GRADIENT = np.random.default_rng(0).normal(size=(2, 64))


def noisy(size: float, seed: int = 1) -> np.ndarray:
    """The gradient, off by that share of its length."""
    noise = np.random.default_rng(seed).normal(size=GRADIENT.shape)
    return GRADIENT + size * noise * np.linalg.norm(GRADIENT) / np.linalg.norm(noise)


def step(gradient: np.ndarray = GRADIENT, update: np.ndarray | None = None, **fields: Any) -> FirstStep:
    update = -0.1 * gradient if update is None else update
    return FirstStep(
        **{
            "optimizer": 0, "parameters": 2, "trainable": 2, "dtypes": ("float32",), "without_gradient": 0,
            "zero_gradient": 0, "unchanged": 0, "part_names": ("first", "second"),
            "norms": tuple(np.linalg.norm(gradient, axis=1)), "gradient": tuple(map(tuple, gradient)),
            "update": tuple(map(tuple, update)), "gradient_digest": str(gradient.sum()),
            "update_digest": str(update.sum()), "settings": ({"lr": 0.1},), **fields,
        }
    )  # fmt: skip


def run(
    first: FirstStep, digest: str = "a", dropout: float = 0.0, norms_evaluating: int = 0, **fields: Any
) -> Measurement:
    forward = Forward(
        after_steps=0, digest=digest, norms_training=3 - norms_evaluating, norms_evaluating=norms_evaluating,
        dropouts=1, dropout_sum=dropout,
    )  # fmt: skip
    steps = FirstSteps(steps=(first,), forwards=(forward,), batches=(("x", "y"),))
    return measurement(first_steps=steps, **{"backwards": (1, 1, 1), **fields})
