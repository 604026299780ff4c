"""Where vivace enters the user's process: the one function that the bootstrap calls, right after ``import torch``.

What it imports stays in that process, so each entry imports only what it needs.
"""

from __future__ import annotations

from vivace.protocol.request import Entry, ProcessRequest

__all__ = ["enter"]


def enter(text: str) -> None:
    """``text``: the request, as the command put it into the environment."""
    request = ProcessRequest.from_text(text)
    if request.entry is Entry.PRACTICES:
        from vivace.practices.engine import entry

        entry.install(request)
    else:
        from vivace.measure.inside import install

        install.install(request)
