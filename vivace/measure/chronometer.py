"""A stopwatch for anybody's training loop: loading, forward, backward, validation and power, step by step.

It touches nothing of the loop: it records CUDA events on the current stream (the host clock where there is
no CUDA) and reads them when asked, so that measuring adds no synchronisation per step. Called by
``examples/dlojz.py`` and by users (``from vivace import Chronometer``). Imports only the standard library
until it is used, so it may live in a measured process.

    chrono = Chronometer()
    chrono.start()
    chrono.next_iter()                     # loading starts (an update() starts it too)
    for images, labels in loader:
        chrono.forward()                   # loading ends, the step and its forward part start
        loss = criterion(model(images), labels)
        chrono.backward()                  # forward ends, backward starts
        loss.backward(); optimizer.step()
        chrono.update()                    # the step ends, power is sampled
        chrono.next_iter()
    chrono.stop()
    chrono.display()

What the figures mean. *Training* is forward() to update(), *Forward* is forward() to backward(), *Backward*
is backward() to update() and so holds the optimizer step. *Loading* is what the step waited for data: from
the last of update(), next_iter() and the closing validation() to forward(). On a GPU all of them are spans
of the GPU's own timeline: a batch that was ready while the GPU was still busy costs no loading time,
however long the host took. Copies to the GPU made before forward() are part of loading.
"""

from __future__ import annotations

import contextlib
import json
import math
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

__all__ = ["Chronometer"]

DRAIN_EVERY = 64  # steps whose CUDA events are kept before the finished ones are read and freed
POWER_PERIOD_S = 0.1  # the driver averages power over at least this long: reading it more often tells nothing

TRACE_LINE = ">>> Sortie trace #####################################"


class Chronometer:
    """Times a training loop. ``device`` None: the GPU once the loop has used CUDA, the host clock before.

    ``clock`` gives seconds; ``power`` gives the watts of each GPU of the node (None: they are read from
    NVML).
    """

    def __init__(
        self,
        device: str | torch.device | None = None,
        *,
        clock: Callable[[], float] = time.perf_counter,
        power: Callable[[], Sequence[float]] | None = None,
    ) -> None:
        self._device = device
        self._clock = clock
        self._read_power = power or _nvml_power_reader()
        self.power_w: list[list[float]] = []  # one sample = the watts of each GPU of the node
        self._training_s: list[float] = []
        self._loading_s: list[float] = []
        self._forward_s: list[float] = []
        self._backward_s: list[float] = []
        self._pending: deque[_Step] = deque()
        self._open: _Step | None = None
        self._load_start = self._started = self._host_mark()
        self._stopped: float | None = None
        self._validation_start: _Mark | None = None
        self._validation: tuple[_Mark, _Mark] | None = None
        self._validation_steps: int | None = None
        self._tac: float | None = None
        self._next_power_s = -math.inf

    # --- the calls of the loop ---

    def start(self) -> None:
        """The whole process starts (otherwise: when the Chronometer was made)."""
        self._load_start = self._started = self._host_mark()
        self._stopped = None

    def stop(self) -> None:
        """The whole process is over. Waits once for the GPU, so that its last steps are counted."""
        if self._uses_cuda():
            import torch

            torch.cuda.synchronize(self._device)
        self._stopped = self._clock()

    def next_iter(self) -> None:
        """The loop asks for its next batch: loading starts here and not before."""
        self._load_start = self._mark()

    def forward(self) -> None:
        """The batch is there: loading ends, the step begins."""
        self._open = _Step(load_start=self._load_start, forward=self._mark())

    def backward(self) -> None:
        """The loss is there: forward ends, backward begins."""
        self._open_step("backward").backward = self._mark()

    def update(self) -> None:
        """The weights are updated: the step ends. Samples the power of the GPUs, at most every 0.1 s."""
        step = self._open_step("update")
        self._open = None
        step.end = self._load_start = self._mark()
        self._pending.append(step)
        if self._read_power is not None and step.end.host_s >= self._next_power_s:
            self.power_w.append(list(self._read_power()))
            self._next_power_s = step.end.host_s + POWER_PERIOD_S
            self._load_start = self._mark()  # reading the power is neither training nor loading
        if len(self._pending) >= DRAIN_EVERY:
            self._drain(wait=False)

    def validation(self, steps: int | None = None) -> None:
        """First call: validation starts. Second call: it ends; ``steps`` says how many batches were run."""
        if self._validation_start is None:
            self._validation_start = self._mark()
            return
        end = self._mark()
        self._validation = (self._validation_start, end)
        self._validation_steps = steps
        self._validation_start = None
        self._load_start = end

    def tac_time(self, clear: bool = False) -> float | None:
        """Host seconds since the last call; None at the first call or with ``clear``, which only reset it."""
        now, last = self._clock(), self._tac
        self._tac = now
        return None if clear or last is None else now - last

    # --- what was measured ---

    @property
    def training_s(self) -> list[float]:
        """Seconds of each step, the first (warm-up) included. Asking waits for the GPU."""
        self._drain(wait=True)
        return self._training_s

    @property
    def loading_s(self) -> list[float]:
        """Seconds each step waited for its batch, the first included."""
        self._drain(wait=True)
        return self._loading_s

    @property
    def forward_s(self) -> list[float]:
        """Seconds of each forward; empty in a loop that never calls backward()."""
        self._drain(wait=True)
        return self._forward_s

    @property
    def backward_s(self) -> list[float]:
        """Seconds of each backward and optimizer step; empty in a loop that never calls backward()."""
        self._drain(wait=True)
        return self._backward_s

    @property
    def total_time(self) -> timedelta:
        """From start() to stop(), or to now."""
        end = self._clock() if self._stopped is None else self._stopped
        return timedelta(seconds=end - self._started.host_s)

    @property
    def val_time(self) -> timedelta | None:
        """The last validation, None before one is over."""
        if self._validation is None:
            return None
        return timedelta(seconds=_seconds_between(*self._validation))

    @property
    def peak_power_w(self) -> float | None:
        """The most that one GPU of the node drew, first sample left out; None where it was not measured."""
        return max((max(sample) for sample in self.power_w[1:] if sample), default=None)

    def display(self, val_steps: int | None = None) -> None:
        """Print the report. ``val_steps``: batches of a whole validation, whose time is then estimated."""
        print(self.report(val_steps), flush=True)

    def report(self, val_steps: int | None = None) -> str:
        """The lines of ``display``. The format is fixed, tools parse it; it leaves out the first step.

        "avg" is the **median** of the training times and the **mean** of the loading times. A figure that
        does not exist (one step only, say) is printed as ``nan``. The JSON series hold every step, the
        first too. Without a timed step, only the whole and the validation are told.
        """
        lines = [f">>> Training complete in: {self.total_time}"]
        if self.training_s:
            lines += self._step_lines()
        lines += self._validation_lines(val_steps)
        if self.training_s:
            lines += [TRACE_LINE, ">>>JSON " + json.dumps(self._series())]
        return "\n".join(lines)

    def _step_lines(self) -> list[str]:
        training, loading = self.training_s[1:], self.loading_s[1:]
        forward, backward = self.forward_s[1:], self.backward_s[1:]
        return [
            f">>> Training performance time: min {_min(training)} avg {_median(training)} seconds "
            f"(+/- {_deviation(training)})",
            f">>> Loading performance time: min {_min(loading)} avg {_mean(loading)} seconds "
            f"(+/- {_deviation(loading)})",
            f">>> Forward performance time: {_mean(forward)} seconds (+/- {_deviation(forward)})",
            f">>> Backward performance time: {_mean(backward)} seconds (+/- {_deviation(backward)})",
            self._power_line(),
        ]

    def _power_line(self) -> str:
        if self.peak_power_w is None:
            return ">>> Peak Power during training: not measured"
        return f">>> Peak Power during training: {self.peak_power_w} W)"  # the bracket is part of the format

    def _validation_lines(self, val_steps: int | None) -> list[str]:
        spent = self.val_time
        if spent is None:
            return []
        if val_steps is None or not self._validation_steps:
            return [f">>> Validation time: {spent}"]
        return [f">>> Validation time estimation: {spent * val_steps / self._validation_steps}"]

    def _series(self) -> dict[str, list[float]]:
        return {
            "GPU process - Forward/Backward": self.training_s,
            "CPU process - Dataloader": self.loading_s,
        }

    # --- inside ---

    def _uses_cuda(self) -> bool:
        if self._device is not None:
            return str(self._device).startswith("cuda")
        torch = sys.modules.get("torch")
        # A loop that has not touched CUDA by its first step runs on the host, whatever the machine has.
        return torch is not None and torch.cuda.is_initialized()

    def _host_mark(self) -> _Mark:
        return _Mark(self._clock(), None)

    def _mark(self) -> _Mark:
        return _Mark(self._clock(), _recorded_event(self._device) if self._uses_cuda() else None)

    def _open_step(self, call: str) -> _Step:
        if self._open is None:
            from vivace.errors import UserError

            raise UserError(
                f"Chronometer.{call}() without a step to end",
                hint="call forward() before the forward pass of every step",
            )
        return self._open

    def _drain(self, wait: bool) -> None:
        """Turn the steps that the GPU has finished into seconds; all of them with ``wait``."""
        while self._pending and (wait or self._pending[0].is_over()):
            step = self._pending.popleft()
            self._loading_s.append(_seconds_between(step.load_start, step.forward))
            self._training_s.append(_seconds_between(step.forward, step.end))
            if step.backward is not None:
                self._forward_s.append(_seconds_between(step.forward, step.backward))
                self._backward_s.append(_seconds_between(step.backward, step.end))


@dataclass(frozen=True)
class _Mark:
    """A boundary: when the host passed it and, on a GPU, the event that says when the GPU did."""

    host_s: float
    event: Any  # torch.cuda.Event | None


@dataclass
class _Step:
    load_start: _Mark
    forward: _Mark
    backward: _Mark | None = None
    end: _Mark | None = None

    def is_over(self) -> bool:
        return self.end is not None and (self.end.event is None or bool(self.end.event.query()))


def _recorded_event(device: str | torch.device | None) -> Any:
    import torch

    event = torch.cuda.Event(enable_timing=True)
    event.record(torch.cuda.current_stream(device))
    return event


def _seconds_between(start: _Mark, end: _Mark | None) -> float:
    assert end is not None  # only finished spans come here
    if start.event is None or end.event is None:
        return end.host_s - start.host_s
    start.event.synchronize()  # the two may lie on different streams
    end.event.synchronize()
    return float(start.event.elapsed_time(end.event)) / 1000


def _nvml_power_reader() -> Callable[[], Sequence[float]] | None:
    """Reads the watts of every GPU of the node; None where NVML or a GPU is missing."""
    try:
        import pynvml

        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
    except Exception:  # no module, no driver, no permission: all mean "not measured"
        return None
    if not handles:
        return None

    def read() -> list[float]:
        watts = []
        for handle in handles:
            with contextlib.suppress(pynvml.NVMLError):  # a GPU that cannot say (MIG) is left out
                watts.append(pynvml.nvmlDeviceGetPowerUsage(handle) / 1000)
        return watts

    return read


def _min(values: list[float]) -> float:
    return min(values, default=math.nan)


def _median(values: list[float]) -> float:
    return statistics.median(values) if values else math.nan


def _mean(values: list[float]) -> float:
    return statistics.fmean(values) if values else math.nan


def _deviation(values: list[float]) -> float:
    return statistics.pstdev(values) if values else math.nan
