"""What changes over the steps of a training: memory that grows, steps that slow down, compilations that come again."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from vivace.records.base import Part

__all__ = ["Compiled", "GraphBreak", "MemoryGrowth", "OverTime"]


class MemoryGrowth(Part):
    """A steady slope over the timed steps, not a first fill."""

    kind: Literal["host", "gpu"]
    mib_per_step: float = Field(gt=0)
    steps_left: int | None = Field(None, description="until the memory that is free now is full")

    def sentence(self) -> str:
        left = f": out of memory in about {self.steps_left:,} steps" if self.steps_left is not None else ""
        amount = f"{self.mib_per_step:.0f}" if self.mib_per_step >= 10 else f"{self.mib_per_step:.2g}"
        return f"{'GPU' if self.kind == 'gpu' else 'host'} memory grows by {amount} MiB a step{left}"


class Compiled(Part):
    function: str
    file: str
    line: int
    times: int
    seconds: float
    reason: str = Field("", description="why it was compiled again, the last time")


class GraphBreak(Part):
    function: str
    line: int
    times: int


class OverTime(Part):
    growth: tuple[MemoryGrowth, ...] = ()
    slower_ms_per_step: float | None = Field(None, description="each step takes so much longer than the one before")
    compiled: tuple[Compiled, ...] = ()
    breaks: tuple[GraphBreak, ...] = ()
    break_reasons: tuple[str, ...] = ()

    def sentences(self) -> list[str]:
        """What a person should know, one sentence each."""
        found = [one.sentence() for one in self.growth]
        if self.slower_ms_per_step is not None:
            found.append(f"steps slow down: each takes {self.slower_ms_per_step:.2g} ms longer than the one before")
        found += [
            f"torch.compile compiled {one.function} ({one.file.rsplit('/', 1)[-1]}:{one.line}) {one.times} times, "
            f"{one.seconds:.1f} s together{f'; the last time because {one.reason}' if one.reason else ''}"
            for one in self.compiled
            if one.times > 1
        ]
        if self.breaks:
            places = ", ".join(f"{one.function} at line {one.line} ({one.times})" for one in self.breaks[:3])
            why = f": {self.break_reasons[0]}" if self.break_reasons else ""
            found.append(f"torch.compile breaks the graph in {places}{why}")
        return found
