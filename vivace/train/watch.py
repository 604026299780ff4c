"""Notices a rank that died, failed or hangs, names it, and ends the others: a collective alone would wait for hours.

A thread in every rank writes a heartbeat to the store where the ranks met, and reads the others'. What a rank says
before it ends goes there too, numbered, so that the first failure is told from those that it causes.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import socket
import sys
import threading
import time
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from vivace import distributed
from vivace.errors import ExitCode, UserError
from vivace.train.settings import WatchSettings

__all__ = ["Watch"]

_BEAT_S = 1.0
_SOON_S = 10.0  # a rank on another node that missed so many beats is gone, once an exchange has failed
_ASK_S = 10.0  # for one answer of the store
_TOLD_FIRST_S = 15.0  # how long the others let the one that names the culprit speak, which may take it ``_SOON_S``


@dataclass
class _Heard:
    """What was heard of a rank, and when (by our own clock)."""

    beat: dict[str, Any] = field(default_factory=dict)
    at: float = field(default_factory=time.monotonic)


class Watch:
    """``with Watch(settings): …``; ``step`` tells it that one begins. Alone it watches the length of steps only."""

    def __init__(self, settings: WatchSettings) -> None:
        self._settings = settings
        self._rank, self._world = dist.get_rank(), dist.get_world_size()
        self._heard = [_Heard() for _ in range(self._world)]
        self._step = 0
        self._step_began: float | None = None  # until the first step: building a model may take long
        self._over = threading.Event()
        self._store = self._own_store() if self._world > 1 else None
        self._thread = threading.Thread(target=self._look, daemon=True, name="vivace-watch")

    def _own_store(self) -> dist.Store:
        """A connection of the thread's own: requests of two threads on one would wait for each other."""
        address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        store = dist.TCPStore(address, port, is_master=False, timeout=timedelta(seconds=_ASK_S))
        return dist.PrefixStore(f"vivace-watch-{distributed.this_start()}", store)

    def step(self, number: int) -> None:
        self._step, self._step_began = number, time.monotonic()

    def __enter__(self) -> Watch:
        self._beat("training")
        if self._world > 1:
            dist.barrier()  # every first beat is there
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _traceback: object) -> None:
        self._over.set()
        self._thread.join(timeout=2 * _ASK_S)
        if self._store is None:
            return
        if error is None or isinstance(error, SystemExit):  # a measurement ends its ranks so
            self._beat("done")
        elif not isinstance(error, UserError | KeyboardInterrupt):
            self._name_the_first(error)

    def _beat(self, state: str, error: str = "") -> None:
        if self._store is None:
            return
        said = {"state": state, "host": socket.gethostname(), "pid": os.getpid(), "step": self._step, "error": error}
        self._store.set(f"beat-{self._rank}", json.dumps({**said, "time": time.monotonic()}))

    def _listen(self) -> None:
        assert self._store is not None
        for heard, text in zip(
            self._heard, self._store.multi_get([f"beat-{n}" for n in range(self._world)]), strict=True
        ):
            beat = json.loads(text)
            if beat != heard.beat:
                heard.beat, heard.at = beat, time.monotonic()

    def _gone(self, silent_s: float) -> str | None:
        """The rank that ended without a word, in words."""
        for rank, heard in enumerate(self._heard):
            beat, silence = heard.beat, time.monotonic() - heard.at
            if rank == self._rank or beat.get("state") != "training":
                continue
            who = f"rank {rank} ({beat['host']}, process {beat['pid']})"
            if beat["host"] == socket.gethostname() and not _lives(beat["pid"]):
                return f"{who} is gone: it ended without an error of its own, in step {beat['step']}"
            if silence > silent_s:
                return f"{who} has said nothing for {silence:.0f} s; it was in step {beat['step']}"
        return None

    def _look(self) -> None:
        """The thread."""
        while not self._over.wait(_BEAT_S):
            late_s = time.monotonic() - self._step_began if self._step_began is not None else 0.0
            limit = self._settings.hung_step_s
            hung = limit is not None and late_s > limit
            if self._store is None:
                if hung:
                    self._dump(f"step {self._step} hangs: it has taken {late_s:.0f} s")
                continue
            try:
                self._beat("training")
                if hung and self._store.add("hung", 1) == 1:
                    who = f"step {self._step} hangs: it has taken rank {self._rank} {late_s:.0f} s"
                    self._store.set("hung-who", who)
                if self._store.check(["hung-who"]):
                    self._dump(self._store.get("hung-who").decode())
                failed = self._store.add("failed", 0)
                self._listen()
            except (RuntimeError, ValueError):  # torch raises the first for a lost connection
                if not self._over.is_set():
                    self._end("the store of the ranks, in rank 0 or its launcher, does not answer any more")
                return
            if gone := self._gone(self._settings.silent_s):
                self._end(gone)
            if failed and not self._over.is_set():  # the rank that failed first says why; we would hang in its exchange
                self._let_it_speak()
                if not self._over.is_set():  # or this rank has met the error itself, and sees to it
                    os._exit(ExitCode.NEGATIVE)

    def _name_the_first(self, error: BaseException) -> None:
        """Called by the rank that failed: was it the first, or did another one go before it?"""
        assert self._store is not None
        try:
            number = self._store.add("failed", 1)
            self._beat("failed", f"{type(error).__name__}: {error}")
            until = time.monotonic() + (_SOON_S if number == 1 else 0)
            while True:
                self._listen()
                if gone := self._gone(_SOON_S):
                    self._end(gone)
                if time.monotonic() >= until or not isinstance(error, RuntimeError):
                    break  # an error of Python's own is no echo of a lost rank
                time.sleep(_BEAT_S)
        except (RuntimeError, ValueError):
            self._end("the store of the ranks, in rank 0 or its launcher, does not answer any more")
        if number > 1:  # an echo: the first one speaks; a launcher would end it when this one is gone
            self._let_it_speak()
            os._exit(ExitCode.NEGATIVE)
        print(f"vivace: rank {self._rank} failed first, in step {self._step}", file=sys.stderr, flush=True)
        with contextlib.suppress(RuntimeError, ValueError):
            self._store.set("spoken", "")

    def _let_it_speak(self) -> None:
        """Until the rank that failed first has said so, or is gone."""
        assert self._store is not None
        until = time.monotonic() + _TOLD_FIRST_S
        with contextlib.suppress(RuntimeError, ValueError):
            while time.monotonic() < until and not self._store.check(["spoken"]):
                time.sleep(_BEAT_S / 4)

    def _dump(self, why: str) -> None:
        print(f"vivace: {why}; stacks of rank {self._rank}:", file=sys.stderr, flush=True)
        faulthandler.dump_traceback(sys.stderr, all_threads=True)
        sys.stderr.flush()
        time.sleep(2 * _BEAT_S)  # for the others to print theirs
        os._exit(ExitCode.NEGATIVE)

    def _end(self, why: str) -> None:
        print(f"vivace: {why}; rank {self._rank} ends", file=sys.stderr, flush=True)
        os._exit(ExitCode.NEGATIVE)


def _lives(pid: int) -> bool:
    """A zombie is dead: its launcher has not looked yet."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        pass
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return not os.path.isdir("/proc/self")  # with /proc, its file would have been there
