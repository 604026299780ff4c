"""Host-device synchronisations in the loop, with the line of the user's code that causes each.

torch warns at every synchronising operation while its sync debug mode is on; the warning is raised in the frame that
caused it, so the stack is there to be read. Explicit ``synchronize()`` calls do not warn and are watched here.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from types import FrameType
from typing import Any

import torch

from vivace.measure.inside.places import short_name, source_line, user_frame

__all__ = ["SyncWatch"]


class SyncWatch:
    """Between ``begin`` and ``finish``: counts by (file, line, code, library line that it went through)."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, int, str, str | None]] = Counter()

    def begin(self) -> None:
        self._mode = torch.cuda.get_sync_debug_mode()
        self._warnings = warnings.catch_warnings()
        self._warnings.__enter__()
        warnings.filterwarnings("always", message=".*called a synchronizing CUDA operation.*")
        self._show = warnings.showwarning
        self._originals = (
            torch.cuda.synchronize,
            torch.cuda.Event.synchronize,
            torch.cuda.Stream.synchronize,
        )
        torch.cuda.synchronize = self._counted(torch.cuda.synchronize)
        torch.cuda.Event.synchronize = self._counted(torch.cuda.Event.synchronize)  # type: ignore[method-assign]
        torch.cuda.Stream.synchronize = self._counted(torch.cuda.Stream.synchronize)  # type: ignore[method-assign]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "a prototype feature": our choice, not the user's
            torch.cuda.set_sync_debug_mode("warn")
        warnings.showwarning = self._on_warning  # type: ignore[assignment]

    def finish(self) -> None:
        torch.cuda.set_sync_debug_mode(self._mode)
        torch.cuda.synchronize, torch.cuda.Event.synchronize, torch.cuda.Stream.synchronize = self._originals  # type: ignore[method-assign]
        self._warnings.__exit__(None, None, None)

    def _on_warning(self, message: Any, category: Any, filename: str, lineno: int, *rest: Any) -> None:
        if "synchronizing CUDA operation" in str(message):
            self._note(sys._getframe(1), None)
        else:
            self._show(message, category, filename, lineno, *rest)

    def _counted(self, original: Any) -> Any:
        def synchronize(*args: Any, **kwargs: Any) -> Any:
            if not (args and _is_done(args[0])):
                self._note(sys._getframe(1), "synchronize")
            return original(*args, **kwargs)

        return synchronize

    def _note(self, frame: FrameType | None, operation: str | None) -> None:
        """Charge it to the nearest line of the user's own code; a library in between (a trainer) is named too."""
        frame, via = user_frame(frame)
        place = frame or via
        if place is not None:
            code = operation if operation and via is None else source_line(place)
            self.counts[(place.f_code.co_filename, place.f_lineno, code, short_name(via) if frame else None)] += 1

    def as_list(self, steps: int) -> list[dict[str, Any]]:
        return [
            {"file": file, "line": line, "code": code, "via": via, "per_step": count / steps}
            for (file, line, code, via), count in self.counts.most_common()
        ]


def _is_done(waited_for: Any) -> bool:
    """An event or stream with nothing left to wait for: asking for it stalls nobody."""
    return isinstance(waited_for, (torch.cuda.Event, torch.cuda.Stream)) and bool(waited_for.query())
