"""Reads what ``examples/dlojz.py`` prints (and the course's own script, whose formats it keeps) into figures.

Reads log files and prints; writes nothing. A line that is missing, cut short or garbled gives None fields,
never a traceback: logs of killed jobs are the ones that people look at. Called by users in a notebook
(``controle_technique("dlojz_1234.out", "dlojz_1234.err")``) and by ``vivace.report``.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from vivace.errors import UserError

__all__ = [
    "DlojzLog",
    "LogPoint",
    "MemoryModel",
    "ValidationPoint",
    "controle_technique",
    "memory_model",
    "read_log",
]


class LogPoint(NamedTuple):
    """One line of training progress."""

    epoch: int
    step: int
    loss: float
    accuracy: float


class ValidationPoint(NamedTuple):
    """One line of validation results."""

    epoch: int
    loss: float
    accuracy: float


@dataclass(frozen=True)
class DlojzLog:
    """One run. A figure is None where the log does not tell it. Only the series hold the first step."""

    nodes: int | None = None
    processes: int | None = None  # one per GPU
    model: str | None = None
    parameters: int | None = None
    global_batch: int | None = None
    mini_batch: int | None = None
    batch_shape: tuple[int, ...] | None = None
    batches_per_epoch: int | None = None
    step_min_s: float | None = None
    step_median_s: float | None = None
    step_std_s: float | None = None
    load_min_s: float | None = None
    load_mean_s: float | None = None
    load_std_s: float | None = None
    forward_mean_s: float | None = None
    backward_mean_s: float | None = None
    peak_power_w: float | None = None  # of one GPU
    training_s: float | None = None
    validation_s: float | None = None  # of the whole validation, estimated in a test run
    memory_bytes: int | None = None
    checkpoint: str | None = None
    step_series_s: tuple[float, ...] = ()
    load_series_s: tuple[float, ...] = ()
    progress: tuple[LogPoint, ...] = ()
    validations: tuple[ValidationPoint, ...] = ()
    out_of_memory: bool = False
    error: str | None = None  # the last line of the last traceback, or of what Slurm or argparse said

    @property
    def gpu_throughput(self) -> float | None:
        """Images per second while the GPU computes: global batch / median step."""
        return _ratio(self.global_batch, self.step_median_s)

    @property
    def train_throughput(self) -> float | None:
        """Images per second as trained: global batch / (median step + mean loading)."""
        return _ratio(self.global_batch, self.iteration_s)

    @property
    def iteration_s(self) -> float | None:
        """Median step + mean loading."""
        if self.step_median_s is None or self.load_mean_s is None:
            return None
        return self.step_median_s + self.load_mean_s

    @property
    def epoch_s(self) -> float | None:
        """Seconds of one epoch, validation left out."""
        if self.iteration_s is None or self.batches_per_epoch is None:
            return None
        return self.iteration_s * self.batches_per_epoch

    @property
    def forward_share(self) -> float | None:
        """Forward / (forward + backward), 0 to 1."""
        if self.forward_mean_s is None or self.backward_mean_s is None:
            return None
        return _ratio(self.forward_mean_s, self.forward_mean_s + self.backward_mean_s)

    @property
    def backward_share(self) -> float | None:
        """Backward and update / (forward + backward), 0 to 1."""
        return None if self.forward_share is None else 1 - self.forward_share

    @property
    def total_peak_power_w(self) -> float | None:
        """Peak power of one GPU x number of GPUs."""
        if self.peak_power_w is None or self.processes is None:
            return None
        return self.peak_power_w * self.processes


def read_log(stdout_text: str, stderr_text: str = "") -> DlojzLog:
    """Everything that a run printed, as figures.

    >>> read_log("global batch size: 512 - mini batch size: 128").global_batch
    512
    """
    nodes, processes = _numbers(stdout_text, r">>> Training on\s+(\d+)\s+nodes and\s+(\d+)\s+processes", 2)
    global_batch, mini_batch = _numbers(stdout_text, r"global batch size: (\d+) - mini batch size: (\d+)$", 2)
    step_min, step_median, step_std = _times(stdout_text, "Training")
    load_min, load_mean, load_std = _times(stdout_text, "Loading")
    steps, loads = _series(stdout_text)
    errors = stderr_text + "\n" + stdout_text  # some launchers merge the two
    return DlojzLog(
        nodes=_whole(nodes),
        processes=_whole(processes),
        model=_text(stdout_text, r"^model: (\S.*)$"),
        parameters=_whole(_numbers(stdout_text, r"^number of parameters: (\d+)\s*$", 1)[0]),
        global_batch=_whole(global_batch),
        mini_batch=_whole(mini_batch),
        batch_shape=_batch_shape(stdout_text),
        batches_per_epoch=_whole(_numbers(stdout_text, r">>> Number of batch per epoch: (\d+)\s*$", 1)[0]),
        step_min_s=step_min,
        step_median_s=step_median,
        step_std_s=step_std,
        load_min_s=load_min,
        load_mean_s=load_mean,
        load_std_s=load_std,
        forward_mean_s=_part_mean(stdout_text, "Forward"),
        backward_mean_s=_part_mean(stdout_text, "Backward"),
        peak_power_w=_numbers(stdout_text, rf">>> Peak Power during training: {NUMBER} W", 1)[0],
        training_s=_duration_s(_text(stdout_text, r"^>>> Training complete in: (.+)$")),
        validation_s=_duration_s(_text(stdout_text, r"^>>> Validation time(?: estimation)?: (.+)$")),
        memory_bytes=_whole(_numbers(stdout_text, r"^Max Memory Allocated (\d+) Bytes", 1)[0]),
        checkpoint=_text(stdout_text, r"^Last epoch checkpointed to (.+)$"),
        step_series_s=steps,
        load_series_s=loads,
        progress=_progress(stdout_text),
        validations=_validations(stdout_text),
        out_of_memory=OUT_OF_MEMORY.search(errors) is not None,
        error=_last_error(stderr_text),
    )


def controle_technique(out_path: str | Path, err_path: str | Path | None = None) -> DlojzLog:
    """Print what a run was worth, from its output file (and its error file), and return it."""
    out = _file_text(out_path)
    whole_lines = out[: out.rfind("\n") + 1]  # a killed job may leave half a number on its last line
    log = read_log(whole_lines, "" if err_path is None else _file_text(err_path))
    print("\n".join(_summary(log)))
    return log


class MemoryModel(NamedTuple):
    """Memory as a straight line of the batch size."""

    model_bytes: float  # parameters, gradients, optimizer: what does not depend on the batch
    bytes_per_sample: float  # activations

    def bytes_at(self, batch: float) -> float:
        return self.model_bytes + self.bytes_per_sample * batch


def memory_model(batch1: int, bytes1: float, batch2: int, bytes2: float) -> MemoryModel:
    """The part of the model and the part of each sample, from the memory of two batch sizes.

    >>> memory_model(64, 10e9, 256, 34e9)
    MemoryModel(model_bytes=2000000000.0, bytes_per_sample=125000000.0)
    """
    if batch1 == batch2:
        raise ValueError(f"two different batch sizes are needed, both are {batch1}")
    per_sample = (bytes2 - bytes1) / (batch2 - batch1)
    return MemoryModel(model_bytes=bytes1 - per_sample * batch1, bytes_per_sample=per_sample)


NUMBER = r"([-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|nan|inf))"
OUT_OF_MEMORY = re.compile(r"out of memory|out_of_memory|OutOfMemoryError|oom[-_ ]kill", re.IGNORECASE)
RANK_PREFIX = re.compile(r"^(?:\[rank\d+\]:\s?|\d+: )", re.MULTILINE)  # torchrun and srun --label
TRACEBACK = "Traceback (most recent call last):"


def _numbers(text: str, pattern: str, count: int) -> Sequence[float | None]:
    """The groups of the last match as numbers: a log that was appended to speaks of its last run."""
    found = re.findall(pattern, text, re.MULTILINE)
    if not found:
        return [None] * count
    groups = found[-1] if isinstance(found[-1], tuple) else (found[-1],)
    return [_finite(group) for group in groups]


def _finite(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _ratio(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None


def _text(text: str, pattern: str) -> str | None:
    found: list[str] = re.findall(pattern, text, re.MULTILINE)
    return found[-1].strip() if found else None


def _times(text: str, what: str) -> Sequence[float | None]:
    pattern = rf">>> {what} performance time: min {NUMBER} avg {NUMBER} seconds \(\+/- {NUMBER}\)"
    return _numbers(text, pattern, 3)


def _part_mean(text: str, what: str) -> float | None:
    return _numbers(text, rf">>> {what} performance time: {NUMBER} seconds", 1)[0]


def _duration_s(text: str | None) -> float | None:
    """Seconds of a printed timedelta: "0:00:12.5", "13:45:00", "2 days, 1:00:00"."""
    match = re.fullmatch(r"(?:(\d+) days?, )?(\d+):(\d\d):(\d\d(?:\.\d+)?)", text or "")
    if match is None:
        return None
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _batch_shape(text: str) -> tuple[int, ...] | None:
    found = _text(text, r"^image batch shape : torch\.Size\(\[([\d, ]+)\]\)")
    return tuple(int(part) for part in found.split(",")) if found else None


def _series(text: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    line = _text(text, r"^>>>JSON (.*)$")
    try:
        content = json.loads(line or "")
    except ValueError:  # cut short
        return (), ()
    if not isinstance(content, dict):
        return (), ()
    return (
        _floats(content.get("GPU process - Forward/Backward")),
        _floats(content.get("CPU process - Dataloader")),
    )


def _floats(values: object) -> tuple[float, ...]:
    if not isinstance(values, list) or not all(isinstance(value, int | float) for value in values):
        return ()
    return tuple(float(value) for value in values)


def _progress(text: str) -> tuple[LogPoint, ...]:
    pattern = rf"^Epoch \[(\d+)/\d+\], Step \[(\d+)/\d+\], Time: {NUMBER}, Loss: {NUMBER}, Acc: ?(\d\.\d{{4}})\s*$"
    return tuple(
        LogPoint(int(epoch), int(step), float(loss), float(accuracy))
        for epoch, step, _, loss, accuracy in re.findall(pattern, text, re.MULTILINE)
    )


def _validations(text: str) -> tuple[ValidationPoint, ...]:
    pattern = rf"^Epoch \[(\d+)/\d+\], Validation Loss: {NUMBER}, Validation Accuracy: (\d\.\d{{4}})\s*$"
    return tuple(
        ValidationPoint(int(epoch), float(loss), float(accuracy))
        for epoch, loss, accuracy in re.findall(pattern, text, re.MULTILINE)
    )


def _last_error(stderr: str) -> str | None:
    """The line that ends the last traceback (the first one after it that is not indented).

    Without a traceback: the last line in which a program (Slurm, argparse) says "error:".
    """
    stderr = RANK_PREFIX.sub("", stderr)
    if TRACEBACK not in stderr:
        return _text(stderr, r"^(.*\berror: .+)$")
    lines = stderr.rpartition(TRACEBACK)[2].splitlines()
    return next((line.strip() for line in lines if line.strip() and not line[0].isspace()), None)


def _file_text(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UserError(f"cannot read the log {path} ({error.strerror})", hint="check its path") from error


def _summary(log: DlojzLog) -> list[str]:
    watts, one_gpu = _show(log.total_peak_power_w, ".0f"), _show(log.peak_power_w, ".0f")
    lines = [
        f"model               {log.model or '-'}, {_show(log.parameters, ',d')} parameters",
        f"GPUs                {_show(log.processes, 'd')} on {_show(log.nodes, 'd')} node(s)",
        f"batch               {_show(log.global_batch, 'd')} global, {_show(log.mini_batch, 'd')} per GPU",
        f"GPU throughput      {_show(log.gpu_throughput, '.1f')} images/s",
        f"train throughput    {_show(log.train_throughput, '.1f')} images/s",
        f"step (median)       {_show(log.step_median_s, '.4f')} s",
        f"loading (mean)      {_show(log.load_mean_s, '.4f')} s",
        f"forward / backward  {_show(log.forward_share, '.1%')} / {_show(log.backward_share, '.1%')}",
        f"epoch               {_show(log.epoch_s, '.1f')} s",
        f"peak power          {watts} W ({one_gpu} W per GPU)",
        f"memory              {_show(_gib(log.memory_bytes), '.2f')} GiB",
    ]
    if log.out_of_memory:
        lines.append("out of memory       yes: use a smaller batch or images, or a leaner precision")
    if log.error:
        lines.append(f"error               {log.error}")
    return lines


def _gib(size_bytes: int | None) -> float | None:
    return None if size_bytes is None else size_bytes / 2**30


def _show(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
