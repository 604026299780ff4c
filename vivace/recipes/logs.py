"""What a training tells: lines with the time left, CSV and JSON lines in the run's folder, TensorBoard if installed.

Losses stay on the device until a line is due. Times leave out validation, saving and the first line, which warms up.
"""

from __future__ import annotations

import contextlib
import csv
import json
import statistics
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from vivace.errors import UserError
from vivace.recipes.course import Course
from vivace.recipes.evaluating import Evaluated
from vivace.recipes.faults import Faults, mean_over_ranks
from vivace.recipes.meters import Meters
from vivace.recipes.recipe import Recipe

__all__ = ["Line", "Log"]


@dataclass(frozen=True)
class Line:
    """The steps since the last line."""

    step: int
    epoch: float
    loss: float
    gradient_norm: float | None
    lr: float
    step_ms: float
    samples_per_s: float
    tokens_per_s: float | None
    data_wait_share: float
    mfu: float | None
    energy_j: float | None


class Log:
    """Called on every rank; the first writes and prints. ``folder`` is None on the others."""

    def __init__(
        self, recipe: Recipe, course: Course, folder: Path | None, meters: Meters, faults: Faults, steps: int | None
    ) -> None:
        self._course, self._folder, self._meters, self._faults, self._steps = course, folder, meters, faults, steps
        self._tokens = course.tokens_per_sample
        self._losses: list[Tensor] = []
        self._norm: Tensor | None = None
        self._waited_s = self._paused_s = 0.0
        self._since = time.perf_counter()
        self._began = time.perf_counter()
        self.lines: list[Line] = []
        self.validations: list[tuple[int, Evaluated]] = []
        self._files: dict[str, IO[str]] = {}
        self._board = _tensorboard(recipe, folder)

    # -- during steps --------------------------------------------------------------------------------------------------

    def note(self, loss: Tensor, norm: Tensor | None, waited_s: float) -> None:
        self._losses.append(loss)
        self._norm = norm
        self._waited_s += waited_s

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """For what is no training: the time inside is in no figure."""
        began = time.perf_counter()
        yield
        self._paused_s += time.perf_counter() - began

    def write(self, step: int, lr: float) -> None:
        """One line. Every rank calls it: losses are exchanged here, and looked at."""
        if not self._losses:
            return
        losses = mean_over_ranks(torch.stack(self._losses).double()).tolist()
        norm = float(self._norm) if self._norm is not None else None
        now = time.perf_counter()
        count, spent_s = len(losses), max(now - self._since - self._paused_s, 1e-9)
        samples = self._course.samples_before(step) - self._course.samples_before(step - count)
        per_s = samples / spent_s
        line = Line(
            step=step,
            epoch=self._course.epoch(step),
            loss=statistics.fmean(losses),
            gradient_norm=norm,
            lr=lr,
            step_ms=1000 * spent_s / count,
            samples_per_s=per_s,
            tokens_per_s=per_s * self._tokens if self._tokens else None,
            data_wait_share=min(1.0, self._waited_s / spent_s),
            mfu=self._meters.mfu(per_s),
            energy_j=self._meters.joules(),
        )
        self.lines.append(line)
        self._losses, self._waited_s, self._paused_s, self._since = [], 0.0, 0.0, now
        if self._folder is not None:
            print(self._text(line), flush=True)
            self._keep("train", asdict(line), step)
        self._faults.look(losses, step - count + 1)

    def validated(self, step: int, found: Evaluated) -> None:
        self.validations.append((step, found))
        if self._folder is None:
            return
        accuracy = "" if found.val_accuracy is None else f"  val_accuracy {found.val_accuracy:.4f}"
        print(f"epoch {self._course.epoch(step):.2f}  val_loss {found.val_loss:.4f}{accuracy}", flush=True)
        values = {
            "step": step,
            "epoch": self._course.epoch(step),
            **asdict(found),
            "wall_s": time.perf_counter() - self._began,
        }
        self._keep("validation", values, step)

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        if self._board is not None:
            self._board.close()

    # -- summary -------------------------------------------------------------------------------------------------------

    def settled_step_ms(self) -> list[float]:
        """Of all lines but the first, which holds warm-up and compilation."""
        return [line.step_ms for line in self.lines[1:]]

    # -- writing -------------------------------------------------------------------------------------------------------

    def _text(self, line: Line) -> str:
        end = f"/{self._steps}" if self._steps else ""
        rate = f"{line.tokens_per_s:,.0f} tokens/s" if line.tokens_per_s else f"{line.samples_per_s:,.1f} samples/s"
        words = [
            f"epoch {line.epoch:.2f}",
            f"step {line.step}{end}",
            f"loss {line.loss:.4f}",
            f"lr {line.lr:.2e}",
            rate,
        ]
        if line.data_wait_share >= 0.05:
            words.append(f"waits for data {100 * line.data_wait_share:.0f} %")
        if line.mfu is not None:
            words.append(f"MFU {100 * line.mfu:.0f} %")
        if line.energy_j is not None:
            words.append(f"{line.energy_j / 1000:.1f} kJ")
        if self._steps:
            words.append(f"{_clock((self._steps - line.step) * line.step_ms / 1000)} left")
        return "  ".join(words)

    def _keep(self, kind: str, values: dict[str, Any], step: int) -> None:
        assert self._folder is not None
        table = "metrics" if kind == "train" else kind
        known = (self._folder / f"{table}.csv").exists()
        writer = csv.DictWriter(self._file(f"{table}.csv"), list(values))
        if not known:
            writer.writeheader()
        writer.writerow(values)
        json.dump({"event": kind, **values}, self._file("metrics.jsonl"))
        self._file("metrics.jsonl").write("\n")
        for file in self._files.values():
            file.flush()
        if self._board is not None:
            for name, value in values.items():
                if isinstance(value, float) and name != "epoch":
                    self._board.add_scalar(f"{kind}/{name}", value, step)

    def _file(self, name: str) -> IO[str]:
        if name not in self._files:
            assert self._folder is not None
            self._files[name] = open(self._folder / name, "a", newline="", encoding="utf-8")  # noqa: SIM115
        return self._files[name]


def _tensorboard(recipe: Recipe, folder: Path | None) -> Any:
    if recipe.log.tensorboard == "off" or folder is None:
        return None
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        if recipe.log.tensorboard == "on":
            raise UserError("log.tensorboard: it is not installed", hint="pip install tensorboard, or auto") from None
        return None
    return SummaryWriter(str(folder / "tensorboard"))


def _clock(seconds: float) -> str:
    """
    >>> _clock(59), _clock(3725)
    ('0:59', '1:02:05')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
