"""``Preemption``: hears that the job must stop soon, and lets all ranks save and stop at the same step.

Why so: Slurm sends its signal to every process of every rank, at any moment. A handler that saves, or talks to the
other ranks, may interrupt a collective or an allocation, and hangs. Ours sets a flag, in the process that made it and
nowhere else; the ranks agree by a small all-reduce on the CPU, whose answer is read one step later, so that no step
waits for it. SIGUSR1 (``--signal``), SIGUSR2 and SIGTERM (preemption) take the same path, as does the word of vivace's
job script (``job_files``).
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from enum import IntEnum
from types import FrameType
from typing import Any, NoReturn

from vivace.preemption.job_files import JobFiles, JobWord, is_first_rank
from vivace.preemption.leaving import WARNINGS, finished, leaving, listening
from vivace.preemption.peers import Peers, find_peers
from vivace.preemption.requeueing import EXIT_INTERRUPTED, job_id, max_requeues_of, requeue

__all__ = ["Preemption", "protect_worker"]

SIGNALS = (*WARNINGS, signal.SIGTERM)
LOOK_EVERY_S = 2.0  # how often rank 0 looks at the job script's file


class _Wish(IntEnum):
    """What a rank would like to do after this step; all do what the most urgent wish says."""

    GO_ON = 0
    SAVE = 1
    STOP = 2


class Preemption:
    """Listens from its creation to ``close``. Make it in the main thread, before the loop.

    ``save_every_steps`` and ``save_every_minutes`` make ``should_save`` answer yes now and then: what was trained since
    the last save is lost when a node dies.
    """

    def __init__(
        self,
        max_requeues: int | None = None,
        save_every_steps: int | None = None,
        save_every_minutes: float | None = None,
    ) -> None:
        for name, every in (("save_every_steps", save_every_steps), ("save_every_minutes", save_every_minutes)):
            if every is not None and not every > 0:
                raise ValueError(f"{name} must be above 0, and is {every}")
        self.max_requeues = max_requeues_of(os.environ) if max_requeues is None else max_requeues
        self.signal: int | None = None
        self.stopping = False  # True on all ranks once they agreed to stop
        self._interrupted = False  # after requeue_and_exit
        self._every_steps = save_every_steps
        self._every_s = None if save_every_minutes is None else save_every_minutes * 60
        self._steps, self._since_s = 0, time.monotonic()
        self._pid = os.getpid()
        self._peers: Peers | None = None
        self._pending: Callable[[], int] | None = None
        self._previous: dict[int, Any] = {number: signal.signal(number, self._note) for number in SIGNALS}
        listening.add(self._pid)
        self._job = JobFiles.of_this_job()
        self._looked_s = -LOOK_EVERY_S
        self._look()  # now that the handlers are there: a warning may have come before
        if self._job is not None:
            self._job.say(JobWord.LISTENING)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if os.getpid() == self._pid:
            self.signal = number
        else:
            _end_child(number)

    def _look(self) -> None:
        now = time.monotonic()
        if self._job is not None and self.signal is None and now - self._looked_s >= LOOK_EVERY_S:
            self._looked_s = now
            if self._job.told_to_stop():
                self.signal = signal.SIGUSR1

    def should_save(self) -> bool:
        """True on all ranks at the same step: as often as asked, and when the job must stop (``stopping``).

        Call this or ``should_stop``, once per step, on every rank.
        """
        return self._agree() is not _Wish.GO_ON

    def should_stop(self) -> bool:
        """True on all ranks at the same step, once any was told to stop. Call it once per step, on every rank."""
        return self._agree() is _Wish.STOP

    def _agree(self) -> _Wish:
        self._steps += 1
        self._peers = self._peers or find_peers()
        wish = self._own_wish() if self._peers is None else self._answer()
        if self._every_steps is not None and self._steps >= self._every_steps:  # all ranks count alike
            wish = max(wish, _Wish.SAVE)
        if wish is not _Wish.GO_ON:
            self._steps, self._since_s = 0, time.monotonic()
        self.stopping = self.stopping or wish is _Wish.STOP
        if self._peers is not None:
            self._pending = self._peers.ask_most(int(self._own_wish()))
        return wish

    def _own_wish(self) -> _Wish:
        self._look()
        if self.signal is not None:
            return _Wish.STOP
        due = self._every_s is not None and time.monotonic() - self._since_s >= self._every_s
        return _Wish.SAVE if due else _Wish.GO_ON

    def _answer(self) -> _Wish:
        """What the ranks said at the previous step; every rank reads the same answer."""
        asked, self._pending = self._pending, None
        return _Wish.GO_ON if asked is None else _Wish(asked())

    def requeue_and_exit(self) -> NoReturn:
        """End this rank with ``EXIT_INTERRUPTED``, after all ranks came here and rank 0 saw to the requeue.

        vivace's job script requeues then. In a script of your own rank 0 asks ``scontrol``; where there is none (in a
        container) the exit code tells the batch script to do it.
        """
        self._peers = self._peers or find_peers()
        self._interrupted = True
        for number in SIGNALS:  # from here on nothing may interrupt: srun signals the slower ranks when one has ended
            signal.signal(number, signal.SIG_IGN)
        if self._peers is not None:
            self._answer()
            self._peers.wait_for_all()
        if is_first_rank() if self._peers is None else self._peers.rank == 0:
            name = signal.Signals(self.signal).name if self.signal else "a signal to another rank"
            print(f"vivace: stopped by {name}; {self._ask_to_go_on()}", file=sys.stderr, flush=True)
        if self._peers is not None:
            self._peers.wait_for_all()
            leaving.add(os.getpid())
        sys.exit(EXIT_INTERRUPTED)

    def _ask_to_go_on(self) -> str:
        if self._job is not None:
            self._job.say(JobWord.SAVED)
        if os.environ.get("VIVACE_REQUEUE_BY") == "script":
            return "the batch script requeues"
        return requeue(self.max_requeues)

    def close(self) -> None:
        """Stop listening: the training is done. Handlers that the script had before come back. A signal that nobody
        waits for does not kill a training that is done: warnings are ignored, and in a job of Slurm's SIGTERM, too,
        which is followed by SIGKILL there."""
        if self._interrupted:  # it is not done: a ``with`` block, or a ``finally``, that requeue_and_exit leaves
            return
        self._answer()
        if self._job is not None:
            self._job.say(JobWord.DONE)
        if job_id() is not None:
            finished.add(self._pid)
        self._give_back()

    def _give_back(self) -> None:
        for number, handler in self._previous.items():
            if handler is signal.SIG_DFL and number in WARNINGS:
                handler = signal.SIG_IGN
            elif handler is signal.SIG_DFL and self._pid in finished:
                handler = self._ignore  # not SIG_IGN, which programs that the script starts now would inherit
                self._let_children_end()
            signal.signal(number, handler)

    def _let_children_end(self) -> None:
        """Between a fork and the child's first line Python forgets signals that have a handler: a child that is
        terminated right away would live on. So they wait until it has no handler."""
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])

        def block() -> None:
            nonlocal mask
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])

        def unblock() -> None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

        def end_as_usual() -> None:
            if signal.getsignal(signal.SIGTERM) == self._ignore:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
            unblock()

        os.register_at_fork(before=block, after_in_parent=unblock, after_in_child=end_as_usual)

    def _ignore(self, number: int, _frame: FrameType | None) -> None:
        if os.getpid() != self._pid:
            _end_child(number)

    def __enter__(self) -> Preemption:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        if error is None:
            self.close()
        elif not self._interrupted:  # it failed
            self._give_back()


def _end_child(number: int) -> None:
    """A child that was forked with our handler must still be stoppable; a warning does not kill it."""
    if number == signal.SIGTERM:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def protect_worker(_worker: int = 0) -> None:
    """A ``worker_init_fn``: the signals reach DataLoader workers as well, and would end them before the step does.

    A protected worker ends with its loader, or with its parent, as always.
    """
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
