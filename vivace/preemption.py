"""Survive a time limit or a preemption: save at a step boundary, ask Slurm to start the job again, end. Three lines::

    guard = Preemption()
    for step in range(first_step, last_step):
        ...
        if guard.should_stop():                # all ranks answer alike, at the same step
            save_atomically(state, "last.pt")  # on rank 0, or on every rank with its own file
            guard.requeue_and_exit()

Why so: Slurm sends its signal to every process of every rank, at any moment. A handler that saves, or talks to the
other ranks, may interrupt a collective or an allocation, and hangs. Ours sets a flag, in the process that made it and
nowhere else; the ranks agree by a small all-reduce on the CPU, whose answer is read one step later, so that no step
waits for it. SIGUSR1 (``--signal``), SIGUSR2 and SIGTERM (preemption) take the same path.

Runs in the user's training process: standard library and torch only. Touches signal handlers; calls ``scontrol``.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

__all__ = ["EXIT_INTERRUPTED", "Preemption", "job_id", "protect_worker", "requeue", "save_atomically"]

EXIT_INTERRUPTED = 85  # "I saved; start me again": agreed with vivace's batch script, and free in sysexits.h and bash
WARNINGS = (signal.SIGUSR1, signal.SIGUSR2)
SIGNALS = (*WARNINGS, signal.SIGTERM)
DEFAULT_MAX_REQUEUES = 10
_SCONTROL_S = 60.0
_GOES_ON = ("RUNNING", "TIMEOUT", "PREEMPTED")  # a job in any other state was ended by someone who meant it
_REQUEUED = ("PENDING", "COMPLETING", "REQUEUED", "REQUEUE_FED", "SPECIAL_EXIT", "CONFIGURING", "RUNNING")


_LET_GO_S = 0.2  # for a thread that a busy machine has put off

_agreeing: set[int] = set()  # processes that have a gloo group of ours
_leaving: set[int] = set()  # processes that end because all ranks agreed to
_listening: set[int] = set()  # processes whose handlers are ours


def _ignore_late_warnings() -> None:
    """Python gives handlers of its own back to their default action when it ends. For SIGUSR1 that is death: a warning
    that came while a finished training exits made it look interrupted, and its last piece was trained again."""
    if os.getpid() in _listening:
        for number in WARNINGS:
            signal.signal(number, signal.SIG_IGN)


def _end_process_groups() -> None:
    """Before Python takes a rank apart: a thread of gloo's that lets go of the last all-reduce only then needs Python's
    lock and aborts the process (pytorch issue 190489), and an exit code of 134 asks nobody to start the job again; a
    training that is done would count as failed. Registered when this module is imported: it runs after the script's
    ``finally`` blocks, which may end the groups themselves, and after most of its exit handlers."""
    dist = _initialized_distributed()
    if os.getpid() in _leaving and dist is not None:
        with contextlib.suppress(Exception):
            dist.destroy_process_group()
    if os.getpid() in _agreeing:
        time.sleep(_LET_GO_S)


atexit.register(_end_process_groups)
atexit.register(_ignore_late_warnings)  # before the other one: handlers run last in, first out


class Preemption:
    """Listens for the signals from its creation to ``close``. Make it in the main thread, before the loop."""

    def __init__(self, max_requeues: int | None = None) -> None:
        self.max_requeues = _max_requeues(os.environ) if max_requeues is None else max_requeues
        self.signal: int | None = None
        self._pid = os.getpid()
        self._group: Any = None
        self._pending: tuple[Any, Any] | None = None
        self._previous: dict[int, Any] = {number: signal.signal(number, self._note) for number in SIGNALS}
        _listening.add(self._pid)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if os.getpid() == self._pid:
            self.signal = number
        elif number == signal.SIGTERM:  # a child that was forked with our handler must still be stoppable
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def should_stop(self) -> bool:
        """True on all ranks at the same step, once any of them was signalled. Call it once per step, on every rank."""
        dist = _initialized_distributed()
        if dist is None:
            return self.signal is not None
        answer = self._answer()
        self._pending = self._question(dist)
        return answer

    def _question(self, dist: Any) -> tuple[Any, Any]:
        import torch

        if self._group is None:  # gloo, also beside NCCL: the flag lives on the CPU and no GPU waits for it
            self._group = dist.new_group(backend="gloo")
            _agreeing.add(os.getpid())
        flag = torch.tensor([0 if self.signal is None else 1], dtype=torch.int32)
        return dist.all_reduce(flag, op=dist.ReduceOp.MAX, group=self._group, async_op=True), flag

    def _answer(self) -> bool:
        """What the ranks said at the previous step; every rank reads the same reduced flag."""
        if self._pending is None:
            return False
        work, flag = self._pending
        self._pending = None
        work.wait()
        return bool(flag.item())

    def requeue_and_exit(self) -> NoReturn:
        """End this rank with ``EXIT_INTERRUPTED``, after all ranks came here and rank 0 saw to the requeue.

        vivace's batch script requeues when it sees that exit code. In a script of your own rank 0 asks ``scontrol``;
        where there is none (in a container) the exit code tells the batch script to do it.
        """
        dist = _initialized_distributed()
        for number in SIGNALS:  # from here on nothing may interrupt: srun signals the slower ranks when one has ended
            signal.signal(number, signal.SIG_IGN)
        if dist is not None:
            self._answer()
            dist.barrier(group=self._group)
        if _is_first_rank(dist):
            name = signal.Signals(self.signal).name if self.signal else "a signal to another rank"
            print(f"vivace: stopped by {name}; {self._ask_to_go_on()}", file=sys.stderr, flush=True)
        if dist is not None:
            dist.barrier(group=self._group)
            _leaving.add(os.getpid())
        sys.exit(EXIT_INTERRUPTED)

    def _ask_to_go_on(self) -> str:
        if os.environ.get("VIVACE_REQUEUE_BY") == "script":
            return "the batch script requeues"
        return requeue(self.max_requeues)

    def close(self) -> None:
        """Stop listening: the training is done. Handlers that the script had before come back; a warning that comes
        later and that nobody waits for is ignored, for its default action is to kill the process."""
        self._answer()
        for number, handler in self._previous.items():
            late_warning = number in WARNINGS and handler is signal.SIG_DFL
            signal.signal(number, signal.SIG_IGN if late_warning else handler)

    def __enter__(self) -> Preemption:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def job_id(environment: Mapping[str, str] = os.environ) -> str | None:
    """The id to requeue. The last task of an array bears the array's own id: that one would requeue all tasks."""
    if array := environment.get("SLURM_ARRAY_JOB_ID"):
        return f"{array}_{environment['SLURM_ARRAY_TASK_ID']}"
    return environment.get("SLURM_JOB_ID")


def requeue(max_requeues: int = DEFAULT_MAX_REQUEUES) -> str:
    """Ask Slurm to start this job again, and look whether it will. Returns what happened, in words."""
    job = job_id()
    if job is None:
        return "not in a Slurm job: start the same command again to go on"
    restarts = int(os.environ.get("SLURM_RESTART_COUNT") or 0)
    if restarts >= max_requeues:
        return f"not requeued again after {restarts} restarts"
    if shutil.which("scontrol") is None:
        return f"no scontrol here: exit code {EXIT_INTERRUPTED} asks the batch script to requeue"
    state = _state(job)
    if state not in _GOES_ON:
        return f"not requeued: the job is {state}"
    failure = _scontrol("requeue", job)[1]
    if failure:
        return f"scontrol could not requeue job {job}: {failure}"
    after = _state(job)
    if after not in _REQUEUED:
        return f"scontrol took the requeue of job {job}, but the queue shows {after}"
    return f"job {job} is requeued (restart {restarts + 1} of at most {max_requeues})"


def protect_worker(_worker: int = 0) -> None:
    """A ``worker_init_fn``: the signals reach DataLoader workers as well, and would end them before the step does.

    A protected worker ends with its loader, or with its parent, as always.
    """
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def save_atomically(state: Any, path: str | os.PathLike[str], write: Callable[[Any, Any], None] | None = None) -> None:
    """``torch.save`` beside the target, flushed to disk, then renamed over it: never half a checkpoint."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            (write or _torch_save)(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _torch_save(state: Any, file: Any) -> None:
    import torch

    torch.save(state, file)


def _max_requeues(environment: Mapping[str, str]) -> int:
    text = environment.get("VIVACE_MAX_REQUEUES", "")
    return int(text) if text.isdigit() else DEFAULT_MAX_REQUEUES


def _initialized_distributed() -> Any:
    """torch.distributed when the script uses it; torch is not imported for the sake of this question."""
    dist = getattr(sys.modules.get("torch"), "distributed", None)
    return dist if dist is not None and dist.is_available() and dist.is_initialized() else None


def _is_first_rank(dist: Any) -> bool:
    if dist is not None:
        return bool(dist.get_rank() == 0)
    return os.environ.get("SLURM_PROCID", os.environ.get("RANK", "0")) == "0"


def _state(job: str) -> str:
    text, failure = _scontrol("--oneliner", "show", "job", job)
    marker = "JobState="
    # The last one: a job's name comes earlier in the line, and may hold anything.
    return text.rsplit(marker, 1)[1].split()[0] if marker in text else f"unknown ({failure or 'no such job'})"


def _scontrol(*words: str) -> tuple[str, str]:
    """What it prints, and what went wrong ('' when nothing did)."""
    try:
        done = subprocess.run(["scontrol", *words], capture_output=True, text=True, timeout=_SCONTROL_S)
    except subprocess.TimeoutExpired:
        return "", f"no answer in {_SCONTROL_S:g} s"
    except OSError as error:
        return "", str(error)
    return done.stdout, "" if done.returncode == 0 else done.stderr.strip() or f"exit code {done.returncode}"
