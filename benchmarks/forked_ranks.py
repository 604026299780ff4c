"""Ranks of one training as forks of this process, which has imported torch: several layouts in one start.

For tests and benchmarks on the CPU. The parent never starts a process group itself.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import queue
import socket
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from vivace.parallel.mesh import start_processes
from vivace.train.settings import TrainSettings, check
from vivace.train.training import Training, build

__all__ = ["Outcome", "RanksFailed", "largest_difference", "on_ranks", "outcomes", "trained"]

TIMEOUT_S = 600.0
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Outcome:
    """What a training came to: the mean loss and the gradients' norm of each step, and all weights at the end."""

    losses: list[float]
    norms: list[float]
    weights: dict[str, Array]


def on_ranks(world: int, work: Callable[[], Any], timeout_s: float = TIMEOUT_S) -> list[Any]:
    """What ``work`` returns on each of so many ranks; errors, and ranks that died, are raised here once all ended."""
    fork = multiprocessing.get_context("fork")
    answers: Any = fork.Queue()
    port = _free_port()
    ranks = [fork.Process(target=_rank, args=(rank, world, port, work, answers)) for rank in range(world)]
    for rank in ranks:
        rank.start()
    found: dict[int, Any] = {}
    errors: list[str] = []
    until = time.monotonic() + timeout_s
    try:
        while len(found) + len(errors) < world and time.monotonic() < until:
            ended = all(rank.exitcode is not None for rank in ranks)
            try:
                number, value, error = answers.get(timeout=0.2)
            except queue.Empty:
                if ended:
                    break
                continue
            if error:
                errors.append(f"rank {number} of {world} failed:\n{error}")
            else:
                found[number] = value
    finally:
        for rank in ranks:
            if rank.exitcode is None and time.monotonic() >= until:
                rank.kill()
            rank.join()
    if len(found) < world:
        raise RanksFailed(errors, [rank.exitcode for rank in ranks])
    return [found[number] for number in range(world)]


class RanksFailed(RuntimeError):
    def __init__(self, errors: list[str], exit_codes: Sequence[int | None]) -> None:
        super().__init__("\n".join([*errors, f"exit codes {list(exit_codes)}"]))
        self.errors, self.exit_codes = errors, list(exit_codes)


def _rank(number: int, world: int, port: int, work: Callable[[], Any], answers: Any) -> None:
    names = {"RANK": number, "LOCAL_RANK": number, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in names.items()})
    os.environ.update(TORCHELASTIC_RUN_ID="forked", MASTER_ADDR="127.0.0.1")
    torch.set_num_threads(1)
    logging.getLogger("torch.distributed").setLevel(logging.ERROR)  # gathering whole weights is not how one trains
    value: Any = None
    error = ""
    try:
        start_processes()
        value = work()
        dist.barrier()
    except BaseException:
        error = traceback.format_exc()
    answers.put((number, value, error))
    answers.close()
    answers.join_thread()
    os._exit(0)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def trained(settings: TrainSettings) -> Outcome | None:
    """Train to the end; the outcome on rank 0, None elsewhere."""
    check(settings, dist.get_world_size())
    training = build(settings)
    losses, norms = [], []
    while training.step < settings.steps:
        loss, norm = training.take_step()
        losses.append(_mean(loss))
        norms.append(norm.item())
    weights = whole_weights(training)
    return Outcome(losses, norms, weights) if dist.get_rank() == 0 else None


def _mean(loss: Tensor | None) -> float:
    both = torch.zeros(2, dtype=torch.float64)
    if loss is not None:
        both += torch.tensor([float(loss), 1.0], dtype=torch.float64)
    dist.all_reduce(both)
    return float(both[0] / both[1])


def whole_weights(training: Training) -> dict[str, Array]:
    """Every weight of the model, on every rank."""
    model = training.state_dict()["model"]
    whole = {name: value.full_tensor() if isinstance(value, DTensor) else value for name, value in model.items()}
    mine = {name: value.detach().numpy().copy() for name, value in whole.items()}
    pipeline = training.meshes.pipeline
    if pipeline.size() == 1:
        return mine
    every: list[Any] = [None] * pipeline.size()
    dist.all_gather_object(every, mine, group=pipeline.get_group())
    return {name: value for each in every for name, value in each.items()}


def largest_difference(one: Outcome, other: Outcome) -> tuple[float, float, float]:
    """Of losses and norms, relative; of weights, absolute."""
    assert one.weights.keys() == other.weights.keys()
    losses = max(abs(a - b) / max(1e-30, abs(b)) for a, b in zip(one.losses, other.losses, strict=True))
    norms = max(abs(a - b) / max(1e-30, abs(b)) for a, b in zip(one.norms, other.norms, strict=True))
    weights = max(float(np.abs(one.weights[name] - value).max()) for name, value in other.weights.items())
    return losses, norms, weights


def outcomes(world: int, every: Sequence[TrainSettings]) -> list[Outcome]:
    """Several trainings in turn on the same ranks."""
    found: list[Outcome] = on_ranks(world, lambda: [trained(settings) for settings in every])[0]
    return found
