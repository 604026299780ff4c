"""Whose time is a sampled line's? Decisions on phases, kinds of work and names of modules."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace

from vivace.protocol.sampling import SeenLine, SeenWorkers
from vivace.records.ledger import Cause

__all__ = ["LAUNCHES", "beneath", "by_line", "cause_of", "data_to_do", "to_do"]

LAUNCHES = 0.2  # of a line inside operators: the rest of it is what launching them takes

_BY_PHASE = {"loader": Cause.DATA, "communication": Cause.EXCHANGE, "copy": Cause.COPIES}
_COMPUTING = ("forward", "backward", "optimizer")
_SAVING = ("torch.serialization", "torch.distributed.checkpoint", "safetensors", "pickle", "vivace.checkpoint")
_LOGGING = (
    "logging", "tqdm", "wandb", "tensorboard", "tensorboardX", "torch.utils.tensorboard", "mlflow", "comet_ml",
    "neptune", "clearml", "aim", "loguru", "rich", "csv",
)  # fmt: skip


def cause_of(line: SeenLine, launches: bool, operators_seen: bool) -> Cause:
    """``launches``: much of this line is spent inside operators."""
    if line.ours:
        return Cause.OWN
    if line.phase in _BY_PHASE:
        return _BY_PHASE[line.phase]
    if line.work:
        return Cause.EXCHANGE if line.work == "communication" else Cause.OPERATORS
    if not operators_seen and line.phase in _COMPUTING:
        return Cause.OPERATORS
    if _is_of(line.via, _SAVING):
        return Cause.SAVING
    if _is_of(line.via, _LOGGING) or line.code.startswith("print("):
        return Cause.LOGGING
    return Cause.DISPATCH if line.leaf_in_torch or launches else Cause.HOST


def _is_of(name: str, modules: tuple[str, ...]) -> bool:
    return name.startswith(tuple(f"{module}." for module in modules))


_WAITS = (
    "The thread waits here (a sleep, a lock, a file, the network, another process). Take it out of the loop, or let "
    "another thread wait."
)
_COMPUTES = "Python works here in every step. Do it once before the loop, less often, or in another process."
_TO_DO = {
    Cause.LOGGING: "Log every 50th step, or hand the values to a thread that writes them.",
    Cause.SAVING: "Save less often, or copy the state to the host and write it in a thread.",
    Cause.DATA: "The loop makes its batches itself here. Give the DataLoader workers (num_workers), and make the line "
    "cheaper or do it once beforehand.",
    Cause.GC: "Once the model and the data are made, call gc.collect() and gc.freeze(); or gc.disable(), and "
    "gc.collect() every few hundred steps.",
    Cause.NO_CORE: "Ask for fewer threads (OMP_NUM_THREADS, torch.set_num_threads) and workers, or for more cores.",
}


def to_do(cause: Cause, ms: float, waiting_ms: float) -> str:
    if cause is Cause.HOST:
        return _WAITS if waiting_ms > 0.5 * ms else _COMPUTES
    return _TO_DO.get(cause, "")


def beneath(line: SeenLine) -> str:
    """Where the stack has none of the user's code."""
    return line.near or ("what follows: memory is freed, a batch is sent" if line.ours else line.leaf)


def by_line(lines: Iterable[SeenLine]) -> list[SeenLine]:
    """One for each line, whatever it calls; the largest first."""
    sums: dict[tuple[str, int, int, str], SeenLine] = {}
    for line in sorted((_without_no_core(one) for one in lines), key=lambda one: -one.ms):
        key = (line.file, line.first_line, line.line, "" if line.file else beneath(line))
        before = sums.get(key)
        sums[key] = (
            line
            if before is None
            else replace(before, ms=before.ms + line.ms, waiting_ms=before.waiting_ms + line.waiting_ms)
        )
    return sorted(sums.values(), key=lambda one: -one.ms)


def _without_no_core(line: SeenLine) -> SeenLine:
    """A thread that has no core does not wait for anything of its own."""
    return replace(line, waiting_ms=max(0.0, line.waiting_ms - line.no_core_ms))


def data_to_do(workers: SeenWorkers) -> str:
    """The line of the data set that costs most, and whether workers compute there or wait."""
    first = by_line(workers.lines)[0]
    share = first.ms / workers.batch_ms if workers.batch_ms else 0.0
    place = f"{os.path.basename(first.file)}:{first.line} `{first.code}`" if first.file else beneath(first)
    waits = first.waiting_ms > 0.5 * first.ms
    return (
        f"A worker takes {workers.batch_ms:.0f} ms for a batch, {min(1.0, share):.0%} of it in {place}, where it "
        f"{'waits (storage, network, a lock)' if waits else 'computes'}. "
        + (
            "More workers wait side by side."
            if waits
            else "Make that line cheaper, do it once beforehand, or add workers."
        )
    )
