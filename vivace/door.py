"""Where vivace enters the user's process: the one function that the bootstrap calls, right after ``import torch``.

What it imports stays in that process, so each entry imports only what it needs.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from vivace.protocol import chaos
from vivace.protocol.request import Entry, ProcessRequest

__all__ = ["enter"]


def enter(text: str) -> Callable[[], None]:
    """``text``: the request, as the command put it into the environment. Returns what to call last of all."""
    request = ProcessRequest.from_text(text)
    if request.entry is Entry.PRACTICES:
        from vivace.practices.engine import entry

        entry.install(request)
    elif request.entry is Entry.RATES:
        from vivace.measure.inside import rate_test

        rate_test.install(request)
    elif request.entry is Entry.SWITCHBACK:
        from vivace.practices.switching import install as switching

        switching.install(request)
    elif request.entry is Entry.MEASURING:
        from vivace.measure.inside import install

        install.install(request)
    _let_chaos_in()
    if not request.measure and request.entry not in (Entry.RATES, Entry.SWITCHBACK):
        return _nothing
    from vivace.measure.inside.leaving import end_quickly

    return end_quickly


def _let_chaos_in() -> None:
    """Whatever else was asked: the job of a ``vivace chaos`` may be a ``vivace run``."""
    text = os.environ.get(chaos.VARIABLE)
    if text:
        from vivace.chaos import inside

        inside.install(text)


def _nothing() -> None:
    """A training that is only changed ends by itself."""
