"""Whether the script itself calls, in its main thread: there all ranks are at the same place."""

from __future__ import annotations

import os
import sys
import sysconfig
import threading

__all__ = ["called_by_script", "this_is_the_rank"]

_rank = {"pid": os.getpid()}
_LIBRARIES = (
    *{sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")},
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
)


def this_is_the_rank() -> None:
    """Processes that are forked from this one are not."""
    _rank["pid"] = os.getpid()


def called_by_script(depth: int) -> bool:
    """``depth``: how many frames above the one that asks. Not a library, a thread or a forked child."""
    if os.getpid() != _rank["pid"] or threading.current_thread() is not threading.main_thread():
        return False
    file = os.path.abspath(sys._getframe(depth + 1).f_code.co_filename)
    return not file.startswith(_LIBRARIES) and "<" not in file
