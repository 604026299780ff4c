"""Called by the door right after ``import torch``: the practices that were asked for, and who switches them."""

from __future__ import annotations

import atexit
from pathlib import Path
from typing import Any

from torch.optim.optimizer import register_optimizer_step_post_hook

from vivace.measure.inside.comparing import compile_cache, seeds
from vivace.measure.inside.patches import unseen_by_dynamo
from vivace.measure.inside.patches.optimizers import _is_outermost
from vivace.practices.engine.entry import change_of
from vivace.practices.engine.parts import Parts
from vivace.practices.engine.registry import get_practice, split_word
from vivace.practices.switching.arms import Arms
from vivace.practices.switching.driver import Driver
from vivace.protocol.request import ProcessRequest

__all__ = ["install"]


def install(request: ProcessRequest) -> None:
    assert request.switchback is not None
    if request.seed_offset is not None:
        seeds.install(request.seed_offset)
    compile_cache.install()
    words = (*request.switchback.start, *request.switchback.words)
    changes = {word: change_of(word) for word in sorted(words, key=_order)}
    parts = Parts(list(changes.values()))
    parts.catch_roots_to_switch()
    driver = Driver(request.switchback, Arms(changes), parts, Path(request.folder), _exclude_each_other)
    atexit.register(driver.at_exit)
    _watch_steps(driver)


def _order(word: str) -> tuple[int, str]:
    return get_practice(split_word(word)[0]).order, word


def _exclude_each_other(word: str, kept: str) -> bool:
    one, other = (get_practice(split_word(each)[0]) for each in (word, kept))
    return one.name == other.name or other.name in one.excludes or one.name in other.excludes


def _watch_steps(driver: Driver) -> None:
    def after(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if driver.here() and _is_outermost() and driver.cycles.step(optimizer):
            driver.on_cycle()

    after._torchdynamo_disable = True  # type: ignore[attr-defined]
    register_optimizer_step_post_hook(unseen_by_dynamo(after))
