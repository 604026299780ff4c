"""What changes from step to step, as a process tells the command: memory, and what torch.compile had to do."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["SeenBreak", "SeenCompiled", "SeenCompiling", "SeenMemorySeries"]


@dataclass(frozen=True)
class SeenMemorySeries:
    """MiB after the timed steps with these numbers. ``free_mib``: what was left at the end of them."""

    steps: list[int] = field(default_factory=list)
    mib: list[float] = field(default_factory=list)
    free_mib: float | None = None


@dataclass(frozen=True)
class SeenCompiled:
    """A function that torch.compile compiled, how often, in how many seconds together, and why the last time."""

    function: str = ""
    file: str = ""
    line: int = 0
    times: int = 0
    seconds: float = 0.0
    reason: str = ""


@dataclass(frozen=True)
class SeenBreak:
    """A graph break: the line of the function at which the compiled code ends, and begins again."""

    function: str = ""
    line: int = 0
    times: int = 0


@dataclass(frozen=True)
class SeenCompiling:
    compiled: list[SeenCompiled] = field(default_factory=list)
    breaks: list[SeenBreak] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    """For breaks, the most frequent first."""
