"""Where vivace enters the user's process: the one function that the bootstrap calls, right after ``import torch``.

What it imports stays in that process, so each entry imports only what it needs.
"""

from __future__ import annotations

from collections.abc import Callable

from vivace.protocol.request import Entry, ProcessRequest

__all__ = ["enter"]


def enter(text: str) -> Callable[[], None]:
    """``text``: the request, as the command put it into the environment. Returns what to call last of all."""
    request = ProcessRequest.from_text(text)
    if request.entry is Entry.PRACTICES:
        from vivace.practices.engine import entry

        entry.install(request)
    else:
        from vivace.measure.inside import install

        install.install(request)
    if not request.measure:
        return _nothing
    from vivace.measure.inside.leaving import end_quickly

    return end_quickly


def _nothing() -> None:
    """A training that is only changed ends by itself."""
