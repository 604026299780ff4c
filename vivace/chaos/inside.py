"""In every Python process of the job, right after ``import torch``: counts optimizer steps, and strikes.

Standard library and torch only, Python 3.9.
"""

from __future__ import annotations

import contextlib
import functools
import os
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from vivace.chaos.ballast import BALLAST
from vivace.protocol.chaos import GO, STRUCK, ChaosOrder, Fault, Told, open_really, tell
from vivace.protocol.rank import rank_and_world

__all__ = ["install"]

_MEETINGS = (
    "all_reduce", "all_gather", "all_gather_into_tensor", "all_gather_object", "reduce_scatter_tensor", "broadcast",
    "broadcast_object_list", "all_to_all_single", "barrier", "send", "recv", "batch_isend_irecv",
)  # fmt: skip
_BELIEVED = 3
_LONGEST_WAIT_S = 10.0
_ROOM = 4096  # what a file may have at most, on a disk that plays full


def install(text: str) -> None:
    """``text``: the order, as ``vivace chaos`` put it into the environment."""
    striker = _Striker(ChaosOrder.from_text(text))
    register_optimizer_step_post_hook(striker.after_step)
    backward = torch.autograd.backward

    def watched(tensors: Any, *more: Any, **options: Any) -> Any:
        return backward(striker.before_backward(tensors), *more, **options)

    torch.autograd.backward = watched
    _watch_meetings(striker)
    _watch_loaders(striker)
    os.register_at_fork(after_in_child=striker.spare)


def _watch_meetings(striker: _Striker) -> None:
    """Where a rank first waits for the others in a step shows who comes late."""
    import torch.distributed as dist

    for name in _MEETINGS if dist.is_available() else ():
        function = getattr(dist, name, None)
        if function is not None:
            setattr(dist, name, _noted(function, striker))


def _watch_loaders(striker: _Striker) -> None:
    """torch tells these two which processes are the workers of a loader, and when they are none any more."""
    from torch.utils.data._utils import signal_handling

    note, forget = signal_handling._set_worker_pids, signal_handling._remove_worker_pids

    def noted(key: int, child_pids: tuple[int, ...]) -> None:
        striker.workers[key] = child_pids
        note(key, child_pids)

    def forgotten(loader_id: int) -> None:
        striker.workers.pop(loader_id, None)
        forget(loader_id)

    signal_handling._set_worker_pids, signal_handling._remove_worker_pids = noted, forgotten


def _noted(function: Callable[..., Any], striker: _Striker) -> Callable[..., Any]:
    @functools.wraps(function)
    def noted(*args: Any, **options: Any) -> Any:
        striker.arrive()
        return function(*args, **options)

    return noted


def _wait_for_ever() -> None:
    while True:
        time.sleep(3600)


class _Striker:
    def __init__(self, order: ChaosOrder) -> None:
        self.order = order
        self.step = 0
        self.counted: int | None = None
        self.arrived_at: float | None = None
        self.backward = False
        self.seen_backward, self.without_backward = False, 0
        self.slow_left = 0
        self.workers: dict[int, tuple[int, ...]] = {}
        self.poison = False
        self.limit: tuple[int, int] | None = None

    def spare(self) -> None:
        """Children (workers of a loader) have disks and steps of their own."""
        if self.limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, self.limit)

    def arrive(self) -> None:
        """The first time in a step."""
        self.arrived_at = self.arrived_at or time.time()

    def before_backward(self, tensors: Any) -> Any:
        self.arrive()
        self.backward = self.seen_backward = True
        if not self.poison:
            return tensors
        self.poison = False
        tell(self.order.folder, Told.FAULT, self.step)
        several = isinstance(tensors, (list, tuple))
        wrong = [tensor * float("nan") for tensor in (tensors if several else [tensors])]
        return wrong if several else wrong[0]

    def after_step(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        """The first optimizer that steps counts: a GAN has two."""
        if not self._is_of_a_training():
            return
        self.counted = self.counted or id(optimizer)
        if self.counted != id(optimizer):
            return
        self.step += 1
        with self._room():
            tell(self.order.folder, Told.STEP, self.step, self.arrived_at)
        self.arrived_at, self.backward = None, False
        if self._is_due():
            self._strike()
        if self.slow_left:
            self.slow_left -= 1
            time.sleep(self.order.delay_s)

    def _is_of_a_training(self) -> bool:
        """DCP makes a step without a backward, to create the optimizer's state before it loads it. A training whose
        gradients come in another way is believed at its third step."""
        if self.backward:
            return True
        self.without_backward += 1
        return not self.seen_backward and self.without_backward >= _BELIEVED

    def _is_due(self) -> bool:
        order = self.order
        if order.fault is None or rank_and_world()[0] != order.rank:
            return False
        if order.fault is Fault.WORKER:  # its loader may be between two epochs
            if self.step < order.step or not any(self.workers.values()):
                return False
        elif self.step != order.step:
            return False
        try:
            os.close(open_really(os.path.join(order.folder, STRUCK), os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def _strike(self) -> None:
        assert self.order.fault is not None
        self._wait_for_the_watcher()
        if self.order.fault is not Fault.NAN:  # which comes with the next backward
            tell(self.order.folder, Told.FAULT, self.step)
        strikes: dict[Fault, Callable[[], None]] = {
            Fault.KILL: lambda: os.kill(os.getpid(), signal.SIGKILL),
            Fault.BIT_ROT: lambda: os.kill(os.getpid(), signal.SIGKILL),
            Fault.STOP: lambda: os.kill(os.getpid(), signal.SIGSTOP),
            Fault.HANG: _wait_for_ever,
            Fault.WORKER: lambda: os.kill(next(pids[0] for pids in self.workers.values() if pids), signal.SIGKILL),
            Fault.SLOW: self._begin_to_be_slow,
            Fault.NAN: self._poison_the_next,
            Fault.DISK_FULL: self._fill_the_disk,
        }
        strikes[self.order.fault]()

    def _wait_for_the_watcher(self) -> None:
        """What was printed before the fault must not be taken for a word about it."""
        tell(self.order.folder, Told.READY, self.step)
        until = time.monotonic() + _LONGEST_WAIT_S
        while not os.path.exists(os.path.join(self.order.folder, GO)) and time.monotonic() < until:
            time.sleep(0.005)

    def _begin_to_be_slow(self) -> None:
        self.slow_left = self.order.slow_steps

    def _poison_the_next(self) -> None:
        self.poison = True

    def _fill_the_disk(self) -> None:
        if self.order.fill is None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            self.limit = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (_ROOM, self.limit[1]))
            return
        with contextlib.suppress(OSError), open(Path(self.order.fill) / BALLAST, "wb", buffering=0) as ballast:
            for size in (2**20, 2**12, 1):
                with contextlib.suppress(OSError):
                    while ballast.write(b"\0" * size):
                        pass

    @contextlib.contextmanager
    def _room(self) -> Any:
        """Our own reports are not part of the fault."""
        if self.limit is None:
            yield
            return
        resource.setrlimit(resource.RLIMIT_FSIZE, self.limit)
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (_ROOM, self.limit[1]))
