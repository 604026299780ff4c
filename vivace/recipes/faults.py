"""Losses that are no number, and losses that jump: what a recipe's ``[faults]`` says is done about them.

Losses are looked at when a line of the log is due, so a GPU is never waited for. Only ``skip`` must know before the
weights change: it reads the loss of every step, which costs time on a GPU.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections import deque
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from vivace.errors import ExitCode, UserError
from vivace.recipes.recipe import FaultPart

__all__ = ["Faults"]

_REMEMBERED = 100
_ENOUGH = 10  # losses, before one can be called a spike
_IN_A_ROW = 20


class Faults:
    def __init__(self, asked: FaultPart) -> None:
        self._asked = asked
        self._recent: deque[float] = deque(maxlen=_REMEMBERED)
        self._in_a_row = 0
        self.skipped = 0
        self.spikes = 0

    @property
    def judges_steps(self) -> bool:
        """Whether every step is judged before the weights change."""
        return "skip" in (self._asked.nan, self._asked.spike)

    def accepts(self, loss: Tensor, norm: Tensor, step: int) -> bool:
        """Whether a step may change the weights; all ranks answer alike."""
        value = loss.detach().double()
        if dist.is_initialized():
            value = value.clone()
            dist.all_reduce(value)
            value /= dist.get_world_size()
        number, size = float(value), float(norm)
        if not math.isfinite(number + size):
            return self._asked.nan != "skip" or self._skip(f"the loss or its gradient is not finite in step {step}")
        if self._asked.spike == "skip" and self._is_spike(number):
            self.spikes += 1
            return self._skip(f"the loss jumped to {number:.4g} in step {step}")
        self._in_a_row = 0
        if self._asked.spike == "skip":
            self._recent.append(number)
        return True

    def _skip(self, why: str) -> bool:
        self.skipped += 1
        self._in_a_row += 1
        if self._in_a_row >= _IN_A_ROW:
            raise UserError(
                f"{why}, and so it was {_IN_A_ROW} times in a row: the training ends",
                hint="a lower --set optim.lr=…, a longer schedule.warmup, or optim.clip_norm=1",
                exit_code=ExitCode.NEGATIVE,
            )
        _say(f"{why}: the step is left out")
        return False

    def look(self, losses: Sequence[float], first_step: int) -> None:
        """The losses of the steps since the last look, the same on all ranks."""
        for step, loss in enumerate(losses, first_step):
            if not math.isfinite(loss):
                if self._asked.nan == "skip":
                    continue
                raise UserError(
                    f"the loss is not finite in step {step}: the training ends",
                    hint="a lower --set optim.lr=…, speed.precision=fp32, or faults.nan=skip to leave such steps out",
                    exit_code=ExitCode.NEGATIVE,
                )
            if self._asked.spike in ("warn", "stop"):
                self._look_for_spike(loss, step)

    def _look_for_spike(self, loss: float, step: int) -> None:
        if self._is_spike(loss):
            self.spikes += 1
            text = (
                f"the loss jumped to {loss:.4g} in step {step} (median before: {statistics.median(self._recent):.4g})"
            )
            if self._asked.spike == "stop":
                raise UserError(
                    text, hint="a lower --set optim.lr=…, or faults.spike=skip", exit_code=ExitCode.NEGATIVE
                )
            _say(text)
        self._recent.append(loss)

    def _is_spike(self, loss: float) -> bool:
        enough = len(self._recent) >= _ENOUGH
        return enough and loss > self._asked.spike_factor * statistics.median(self._recent)


def mean_over_ranks(losses: Tensor) -> Tensor:
    """On the CPU; every rank must ask."""
    if dist.is_initialized():
        dist.all_reduce(losses)
        losses /= dist.get_world_size()
    return losses.cpu()


def _say(text: str) -> None:
    if not dist.is_initialized() or dist.get_rank() == 0:
        print(f"vivace: {text}", file=sys.stderr, flush=True)


def total_norm(parameters: list[torch.nn.Parameter]) -> Tensor:
    """2-norm of all gradients."""
    return torch.nn.utils.get_total_norm([each.grad for each in parameters if each.grad is not None])
