"""A timer of the operating system that interrupts one thread: a POSIX timer with a real-time signal of its own.

``setitimer`` and ``SIGALRM`` are left to the script. Timers are not inherited by ``fork`` nor kept by ``exec``. This
one is taken away at exit: a signal without a handler would end the process.
"""

from __future__ import annotations

import ctypes
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

__all__ = ["NoTimer", "ThreadTimer"]

_SIGEV_THREAD_ID = 4  # bits/siginfo-consts.h
_CLOCK_MONOTONIC = 1
_SIGEVENT_BYTES = 64


class NoTimer(Exception):
    """This system, or this process as it is, has none for us."""


class _SigEvent(ctypes.Structure):
    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("thread", ctypes.c_int),
        ("rest", ctypes.c_char * (_SIGEVENT_BYTES - ctypes.sizeof(ctypes.c_void_p) - 3 * ctypes.sizeof(ctypes.c_int))),
    )


class _TimeSpec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _TimerSpec(ctypes.Structure):
    _fields_ = (("interval", _TimeSpec), ("value", _TimeSpec))


class ThreadTimer:
    """``handler(signal, frame)`` is called in the main thread, once after every ``arm``."""

    def __init__(self, handler: Callable[[int, FrameType | None], None]) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise NoTimer("Python runs signal handlers in the main thread only")
        self._library = _library_with_timers()
        self.signal = _free_signal()
        self._before = signal.signal(self.signal, handler)
        signal.siginterrupt(self.signal, False)  # calls of C libraries go on after it, as far as the system allows
        self._timer: ctypes.c_void_p | None = ctypes.c_void_p()
        event = _SigEvent(signal=self.signal, notify=_SIGEV_THREAD_ID, thread=threading.get_native_id())
        if self._library.timer_create(_CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(self._timer)):
            error = ctypes.get_errno()
            signal.signal(self.signal, self._before)
            raise NoTimer(f"timer_create failed: error {error}")
        self._spec = _TimerSpec()
        self._set, self._reference = self._library.timer_settime, ctypes.byref(self._spec)

    def arm(self, nanoseconds: int) -> None:
        """Below a second."""
        self._spec.value.nanoseconds = nanoseconds
        self._set(self._timer, 0, self._reference, None)

    def close(self) -> None:
        """From the main thread. What is still on its way is thrown away."""
        if self._timer is not None:
            self._library.timer_delete(self._timer)
            self._timer = None
            signal.signal(self.signal, signal.SIG_IGN)
            signal.signal(self.signal, self._before)


def _library_with_timers() -> Any:
    for name in (None, "librt.so.1"):  # in libc itself since glibc 2.34
        try:
            library = ctypes.CDLL(name, use_errno=True)
            library.timer_create.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
            library.timer_settime.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
            library.timer_delete.argtypes = (ctypes.c_void_p,)
        except (OSError, AttributeError):
            continue
        return library
    raise NoTimer("no POSIX timers on this system")


def _free_signal() -> int:
    """A real-time signal that nobody handles, ignores or blocks: not the script, and no library in C."""
    watched = signal.set_wakeup_fd(-1)  # there is no other way to ask
    if watched != -1:
        signal.set_wakeup_fd(watched)
        raise NoTimer("the script watches signals through a file")
    try:
        status = Path(f"/proc/self/task/{threading.get_native_id()}/status").read_text()
        masks = dict(line.split(":\t", 1) for line in status.splitlines() if line.startswith("Sig") and ":\t" in line)
        taken = int(masks["SigBlk"], 16) | int(masks["SigIgn"], 16) | int(masks["SigCgt"], 16)
        last, first = int(signal.SIGRTMAX), int(signal.SIGRTMIN)
    except (OSError, KeyError, ValueError, AttributeError) as error:
        raise NoTimer(f"signals cannot be looked at: {error}") from None
    for number in range(last - 1, first, -1):
        if not taken >> (number - 1) & 1 and signal.getsignal(number) is signal.SIG_DFL:
            return number
    raise NoTimer("every real-time signal is taken")
