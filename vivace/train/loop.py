"""The loop: steps, losses that all ranks agree on, a log, a summary. Read it from top to bottom.

Checkpoints hook in through ``Checkpoints``: one that restores before the first step, and is asked after each.
"""

from __future__ import annotations

import csv
import statistics
import time
from pathlib import Path
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from vivace import distributed
from vivace.errors import ExitCode, UserError
from vivace.parallel.mesh import start_processes, summary
from vivace.records.trained import Trained
from vivace.train.settings import TrainSettings, check
from vivace.train.training import Training, build, learning_rate
from vivace.train.watch import Watch

__all__ = ["Checkpoints", "NoCheckpoints", "train"]

METRICS, RECORD, SETTINGS = "metrics.csv", "trained.json", "settings.json"
_WARM_UP_LOGS = 1  # the first steps allocate, and compile


class Checkpoints(Protocol):
    """Called on every rank, between steps. ``training`` has ``state_dict`` and ``load_state_dict`` for DCP."""

    def restore(self, training: Training) -> None:
        """Before the first step."""

    def after_step(self, training: Training) -> bool:
        """After each; True ends the training here, in good order (the job is to be started again)."""

    def close(self) -> None:
        """After the last step: what is still being written is finished."""


class NoCheckpoints:
    def restore(self, training: Training) -> None:
        pass

    def after_step(self, training: Training) -> bool:
        return False

    def close(self) -> None:
        pass


def train(settings: TrainSettings, folder: Path | None, checkpoints: Checkpoints | None = None) -> Trained:
    """Train to the end, in this rank. ``folder`` is rank 0's, for metrics and the record; None elsewhere."""
    checkpoints = checkpoints or NoCheckpoints()
    world = start_processes(settings.watch.collective_timeout_s)
    check(settings, world.world_size)
    with Watch(settings.watch) as watch:
        training = build(settings)
        checkpoints.restore(training)
        log = _Log(settings, folder, training, world)
        while training.step < settings.steps:
            watch.step(training.step)
            log.note(*training.take_step())
            if training.step % settings.log_every == 0 or training.step == settings.steps:
                log.write(training.step)
            if checkpoints.after_step(training):
                break
        checkpoints.close()
        return log.finish(training, world)


class NotFinite(UserError):
    """A loss that is no number: more steps would train nothing."""


class _Log:
    """Keeps losses where they are until a line is due: reading them every step would stop a GPU's queue."""

    def __init__(
        self, settings: TrainSettings, folder: Path | None, training: Training, world: distributed.World
    ) -> None:
        self._settings, self._folder, self._device = settings, folder, training.meshes.device
        self._tokens = settings.data.seq_len if settings.model == "gpt" else None
        self._losses: list[Tensor] = []
        self._norms: list[Tensor] = []
        self._step_ms: list[float] = []
        self._since = time.perf_counter()
        self.loss = float("nan")
        self._main = world.is_master
        self._resumed = training.step
        if self._main:
            print(summary(settings.layout, world), flush=True)
        if folder is not None and not (self._resumed and (folder / METRICS).exists()):
            self._append(("step", "loss", "gradient_norm", "lr", "step_ms", "samples_per_s", "tokens_per_s"))

    def note(self, loss: Tensor | None, norm: Tensor) -> None:
        missing = torch.full((), -torch.inf, dtype=torch.float64, device=self._device)
        self._losses.append(missing if loss is None else loss.double())
        self._norms.append(norm)

    def write(self, step: int) -> None:
        """One line for the steps since the last one. Every rank calls it: the losses are exchanged here."""
        losses = self._everyones(torch.stack(self._losses))
        first = step - len(self._losses)
        self._refuse_nan(losses, first)
        self.loss = losses[-1][losses[-1] > -torch.inf].mean().item()
        norm = self._norms[-1].item()
        now = time.perf_counter()
        step_ms = 1000 * (now - self._since) / len(self._losses)
        self._step_ms.append(step_ms)
        samples_per_s = 1000 * self._settings.global_batch / step_ms
        tokens_per_s = samples_per_s * self._tokens if self._tokens else None
        self._losses, self._norms, self._since = [], [], now
        if not self._main:
            return
        rate = f"{tokens_per_s:,.0f} tokens/s" if tokens_per_s else f"{samples_per_s:,.1f} images/s"
        lr = learning_rate(step - 1, self._settings.optim, self._settings.steps)
        print(
            f"step {step}/{self._settings.steps}  loss {self.loss:.4f}  norm {norm:.3f}  lr {lr:.2e}  "
            f"{step_ms:.1f} ms  {rate}",
            flush=True,
        )
        self._append((step, repr(self.loss), repr(norm), repr(lr), f"{step_ms:.3f}", f"{samples_per_s:.3f}",
                      "" if tokens_per_s is None else f"{tokens_per_s:.1f}"))  # fmt: skip

    def _everyones(self, mine: Tensor) -> Tensor:
        """Steps x ranks, on the CPU; minus infinity where a rank has no loss (it is not the pipeline's last stage)."""
        every = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(every, mine)
        return torch.stack(every, dim=1).cpu()

    def _refuse_nan(self, losses: Tensor, first: int) -> None:
        wrong = (losses.isnan() | (losses == torch.inf)).nonzero()
        if len(wrong):
            step, rank = wrong[0].tolist()
            raise NotFinite(
                f"the loss of rank {rank} is not finite in step {first + step + 1}: the training ends",
                hint="a lower --set optim.lr, --set engine.precision=fp32, or look at that rank's data",
                exit_code=ExitCode.NEGATIVE,
            )

    def _append(self, row: tuple[object, ...]) -> None:
        if self._folder is not None:
            with open(self._folder / METRICS, "a", newline="", encoding="utf-8") as file:
                csv.writer(file).writerow(row)

    def finish(self, training: Training, world: distributed.World) -> Trained:
        settled = self._step_ms[_WARM_UP_LOGS:]
        quarters = statistics.quantiles(settled, n=4) if len(settled) > 1 else None
        record = Trained(
            model=self._settings.model,
            layout=self._settings.layout,
            processes=world.world_size,
            nodes=world.num_nodes,
            device=str(self._device.type),
            backend=dist.get_backend(),
            parameters=training.count_parameters(),
            global_batch=self._settings.global_batch,
            tokens_per_sample=self._tokens,
            steps=training.step,
            final_loss=self.loss,
            step_ms=statistics.median(settled) if settled else None,
            step_ms_low=quarters[0] if quarters else None,
            step_ms_high=quarters[2] if quarters else None,
        )
        if self._folder is not None:
            record.save(self._folder / RECORD)
        return record
