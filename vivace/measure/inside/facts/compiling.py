"""What torch.compile did in this process: compilations with their reasons, graph breaks with their lines.

Private parts of torch, asked for by feature: what is not there is not told.
"""

from __future__ import annotations

import contextlib
import re
import sys
from typing import Any

from vivace.protocol.over_time import SeenBreak, SeenCompiled, SeenCompiling

__all__ = ["describe_compiling"]

_RESUMED = re.compile(r"torch_dynamo_resume_in_(?P<function>.+)_at_(?P<line>\d+)")
_MOST = 12
_REASON = 160  # characters


def describe_compiling() -> SeenCompiling | None:
    """None: nothing was compiled."""
    utils: Any = sys.modules.get("torch._dynamo.utils")
    if utils is None:
        return None
    with contextlib.suppress(Exception):
        found = SeenCompiling(_compiled(utils), _breaks(utils), _reasons(utils))
        return found if found.compiled or found.breaks else None
    return None


def _compiled(utils: Any) -> list[SeenCompiled]:
    sums: dict[tuple[str, str, int], SeenCompiled] = {}
    metrics: list[Any] = getattr(utils, "get_compilation_metrics", list)()
    for one in metrics:
        function, file = str(getattr(one, "co_name", "") or ""), str(getattr(one, "co_filename", "") or "")
        resumed = _RESUMED.fullmatch(function)  # the rest of a function after a graph break
        function = resumed["function"] if resumed else function
        line = int(getattr(one, "co_firstlineno", 0) or 0)
        before = sums.get((function, file, line), SeenCompiled())
        again = _first_line(getattr(one, "recompile_reason", None))
        seconds = float(getattr(one, "entire_frame_compile_time_s", None) or 0.0)
        if file:
            sums[function, file, line] = SeenCompiled(
                function, file, line, before.times + 1, before.seconds + seconds, again or before.reason
            )
    return sorted(sums.values(), key=lambda one: -one.seconds)[:_MOST]


def _breaks(utils: Any) -> list[SeenBreak]:
    found = [(_RESUMED.fullmatch(name), times) for name, times in utils.counters.get("resumes", {}).items()]
    breaks = [SeenBreak(match["function"], int(match["line"]), int(times)) for match, times in found if match]
    return sorted(breaks, key=lambda one: -one.times)[:_MOST]


def _reasons(utils: Any) -> list[str]:
    counts: dict[str, int] = {}
    for kind in ("graph_break", "unimplemented"):
        for text, times in utils.counters.get(kind, {}).items():
            counts[_first_line(text)] = counts.get(_first_line(text), 0) + int(times)
    return sorted(counts, key=lambda text: -counts[text])[:_MOST]


def _first_line(text: Any) -> str:
    return (str(text).strip().splitlines() or [""])[0][:_REASON] if text else ""
