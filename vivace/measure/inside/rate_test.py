"""A learning-rate range test in the user's process: another rate before every optimizer step, and the loss after it.

The rate is set right before the step, so whatever the script's own schedule writes is overwritten. Groups keep their
ratios. The script ends after the last rate, long before it would save anything; its weights are nobody's any more. With
several ranks all of them try all rates: they must leave together.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import socket
import time
from pathlib import Path
from typing import Any

import torch
from torch.compiler import is_compiling
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from vivace.measure.inside.comparing import seeds
from vivace.measure.inside.leaving import Exit
from vivace.measure.inside.patches import in_place_of, unseen_by_dynamo
from vivace.measure.inside.patches.optimizers import _is_outermost
from vivace.protocol.progress import SeenProgress
from vivace.protocol.rank import rank_and_world
from vivace.protocol.rates import RateEnd, RateTest, SeenRates, rates_name
from vivace.protocol.request import ProcessRequest

__all__ = ["install"]

_DIVERGED = 4.0  # times the best loss, as fast.ai's finder stops
_FEWEST = 10  # steps before that counts
_MOST_SKIPPED = 20  # backward passes in a row without a step: a GradScaler that skips all of them has diverged
_TELL_S = 0.2


class _RangeTest:
    def __init__(self, test: RateTest, folder: Path) -> None:
        self.test, self.folder, self.pid = test, folder, os.getpid()
        self.exit = Exit()
        self.optimizer: Any = None
        self.ratios: list[float] = []
        self.own: list[float] = []
        self.rates: list[float] = []
        self.losses: list[float] = []  # of the step before each rate, so one more than rates in the end
        self.of_this_step: list[Any] = []
        self.in_step = False
        self.skipped = 0
        self.backwards_a_step = 1
        self.done = False
        self.told_at = 0.0

    def here(self) -> bool:
        return os.getpid() == self.pid and not self.done

    def before_step(self, optimizer: Any) -> None:
        if self.optimizer is None:
            self._meet(optimizer)
        elif optimizer is not self.optimizer:
            self.finish(RateEnd.TWO_OPTIMIZERS)
        if self.of_this_step:
            self._note_loss()
        self.in_step, self.skipped = True, 0
        rate = self.test.rate(len(self.rates))
        for group, ratio in zip(optimizer.param_groups, self.ratios):
            _set_rate(group, rate * ratio)

    def after_step(self) -> None:
        if self.of_this_step:  # a closure: the loss at the step's start
            del self.of_this_step[1:]
            self._note_loss()
        self.in_step = False
        self.rates.append(self.test.rate(len(self.rates)))
        self._tell()

    def after_backward(self, loss: Any) -> None:
        if not (self.in_step and self.of_this_step) and loss is not None:
            self.of_this_step.append(loss)
        self.skipped += not self.in_step
        if self.optimizer is not None and self.skipped > _MOST_SKIPPED * self.backwards_a_step:
            self.finish(RateEnd.DIVERGED)

    def _meet(self, optimizer: Any) -> None:
        self.optimizer = optimizer
        groups = optimizer.param_groups
        if not all("lr" in group for group in groups):
            self.finish(RateEnd.NO_RATE)
        self.own = [float(group.get("initial_lr", group["lr"])) for group in groups]
        largest = max(self.own) or 1.0
        self.ratios = [own / largest if any(self.own) else 1.0 for own in self.own]
        self.backwards_a_step = max(1, len(self.of_this_step))

    def _note_loss(self) -> None:
        """Of several backward passes before a step the mean: they are the parts of one batch."""
        self.losses.append(sum(float(loss) for loss in self.of_this_step) / len(self.of_this_step))
        self.of_this_step = []
        if len(self.rates) >= self.test.steps:
            self.finish(RateEnd.ALL_TRIED)
        if rank_and_world()[1] == 1 and len(self.losses) > 1 and self._has_diverged():
            self.finish(RateEnd.DIVERGED)

    def _has_diverged(self) -> bool:
        last, best = self.losses[-1], min(self.losses, default=math.inf)
        if not math.isfinite(last):
            return True
        start = self.losses[0]
        far = last - best > (_DIVERGED - 1) * abs(best) and last > start
        return len(self.losses) > _FEWEST and far

    def finish(self, end: RateEnd) -> None:
        self.write(end)
        self.exit.leave(alone=rank_and_world()[1] == 1)

    def write(self, end: RateEnd) -> None:
        self.done = True
        tried = max(0, min(len(self.rates), len(self.losses) - 1))
        seen = SeenRates(
            end, tuple(self.rates[:tried]), tuple(self.losses[1 : tried + 1]),
            self.losses[0] if self.losses else None, tuple(self.own),
            type(self.optimizer).__name__ if self.optimizer is not None else "", rank_and_world()[0],
        )  # fmt: skip
        path = self.folder / rates_name(rank_and_world()[0], self.pid)
        temporary = path.with_suffix(".tmp")
        with contextlib.suppress(OSError):
            temporary.write_text(seen.to_text())
            os.replace(temporary, path)

    def at_exit(self) -> None:
        if self.here() and self.optimizer is not None:
            self.write(RateEnd.SCRIPT_ENDED)

    def _tell(self) -> None:
        if time.monotonic() - self.told_at < _TELL_S:
            return
        self.told_at = time.monotonic()
        rank = rank_and_world()[0]
        seen = SeenProgress(
            rank, f"learning rate {self.rates[-1]:.1e}", len(self.rates), self.test.steps, len(self.rates)
        )
        path = self.folder / f"progress-{socket.gethostname()}-{self.pid}.json"
        temporary = path.with_suffix(".tmp")
        with contextlib.suppress(OSError):
            temporary.write_text(seen.to_text())
            os.replace(temporary, path)


def install(request: ProcessRequest) -> None:
    assert request.rate_test is not None
    if request.seed_offset is not None:
        seeds.install(request.seed_offset)
    test = _RangeTest(request.rate_test, Path(request.folder))
    atexit.register(test.at_exit)
    _watch_steps(test)
    _watch_backwards(test)


def _watch_steps(test: _RangeTest) -> None:
    def before(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if test.here() and _is_outermost():
            test.before_step(optimizer)

    def after(_optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if test.here() and _is_outermost():
            test.after_step()

    before._torchdynamo_disable = after._torchdynamo_disable = True  # type: ignore[attr-defined]
    register_optimizer_step_pre_hook(unseen_by_dynamo(before))
    register_optimizer_step_post_hook(unseen_by_dynamo(after))


def _watch_backwards(test: _RangeTest) -> None:
    original, unscaled = torch.autograd.backward, {}  # type: ignore[var-annotated]

    def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        loss = None
        if not is_compiling() and test.here():
            loss = _loss_of(tensors, unscaled)
        result = original(tensors, *args, **kwargs)
        if not is_compiling() and test.here():
            test.after_backward(loss)
        return result

    torch.autograd.backward = in_place_of(original, backward)
    scale = torch.amp.GradScaler.scale

    def scaled(self: Any, outputs: Any) -> Any:
        result = scale(self, outputs)
        if isinstance(outputs, torch.Tensor) and self.is_enabled():
            unscaled.clear()
            unscaled[id(result)] = outputs.detach()
        return result

    torch.amp.GradScaler.scale = in_place_of(scale, scaled)  # type: ignore[method-assign]


def _loss_of(tensors: Any, unscaled: dict[int, Any]) -> Any:
    tensor = tensors if isinstance(tensors, torch.Tensor) else None
    if tensor is None or tensor.numel() != 1:
        return None
    raw = unscaled.pop(id(tensor), None)
    return (tensor if raw is None else raw).detach().clone()


def _set_rate(group: dict[str, Any], rate: float) -> None:
    """In place where it is a tensor: compiled and captured steps read that one."""
    if isinstance(group["lr"], torch.Tensor):
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate
