"""``Practice``: one thing that makes training faster, and how to see that it is missing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from vivace.practices.engine.change import Change
    from vivace.practices.engine.probed import Probed
    from vivace.records.measurement import Measurement

    Evidence = dict[str, float | int | str | bool | None]

__all__ = ["Family", "Found", "NumberFormat", "Practice", "RiskName", "Saved", "never_found"]

RiskName = Literal["exact", "rounding", "algorithmic"]
NumberFormat = Literal["fp32", "tf32", "fp16", "bf16", "fp8"]
Family = Literal["precision", "kernels", "loader", "memory", "structure", "cpu", "host", "method"]


@dataclass(frozen=True)
class Saved:
    """Milliseconds per step that the practice should save, with a range. Negative where it may cost time."""

    ms: float
    low_ms: float
    high_ms: float


@dataclass(frozen=True)
class Found:
    """A practice is missing here. ``exposed_ms`` per step is what it could save at most; the rest is why."""

    exposed_ms: float
    evidence: Evidence
    says: str
    """One sentence with the figures in it."""
    likely: Saved | None = None
    """What it should really save. None: nobody has modelled it; then half of ``exposed_ms``, between none and all."""
    idle_ms: float = 0.0
    """The part of ``exposed_ms`` in which the GPU has nothing to do: others may act on the same."""
    where: tuple[str, int] | None = None
    setting: str | None = None
    """The word for ``--with``, when it is more than the name: ``workers=8``."""
    title: str | None = None
    """Where it says more than the practice's own."""
    by_hand: str | None = None
    """Lines for this script, when they say more than the practice's own."""
    why_not: str | None = None
    """Why it cannot be applied from outside, here."""
    also_try: tuple[str, ...] = ()
    """Further words that a tune may try in its place: ``compile=reduce-overhead``."""
    part_of: tuple[str, ...] = ()
    """Practices that have the same cause: where one of them is found, this finding is only another view of it."""


@dataclass(frozen=True)
class Practice:
    name: str
    title: str
    family: Family
    risk: RiskName
    source: str
    why: str
    by_hand: str
    find: Callable[[Measurement], Found | None]
    find_probed: Callable[[Measurement, Probed], Found | None] | None = None
    """``find`` with what differential runs measured, where they price it better."""
    find_all: Callable[[Measurement], tuple[Found, ...]] | None = None
    """In place of ``find``, where one job may have several: lines that have nothing to do with each other."""
    change: Callable[[str | None], Change] | None = None
    """None: it can be found and priced, but only the user can change it."""
    argument: str | None = None
    """What ``name=ARGUMENT`` means, in words."""
    lines: Callable[[str], str] | None = None
    """The lines to write by hand for an argument."""
    excludes: tuple[str, ...] = ()
    """Practices that make no sense beside this one."""
    order: int = field(default=50)
    """Changes of a lower order come first: workers before what needs workers, casts before compile."""
    same_losses: bool = True
    """Of an exact one: whether every loss stays the same to the bit. Not where workers draw other augmentations."""
    number_format: NumberFormat = "fp32"
    """The format that its products round to: gradients of the first step may differ by as much."""
    other_draws: bool = False
    """It may see other batches or draw other random numbers (augmentations, dropout masks) than the script does."""
    can_draw_the_same: bool = False
    """Of those: whether it can be made to draw what the script would (``Change.same_draws``)."""
    same_arithmetic: bool = True
    """A step computes as much as before, on the same devices: what that takes at their peak is always left."""
    rounds_weights: bool = False
    """Weights are kept in that format, too: updates may be lost."""
    shows_late: bool = False
    """What it does to a training may show only after hundreds of steps: the proof looks longer."""
    for_new_shapes: bool = False
    """It acts on what input shapes that were not seen before cost."""
    try_last: bool = False
    """Its trial takes long (compilation): a tune tries it when the rest is settled."""
    worth_trying: Callable[[Measurement], tuple[str, ...]] | None = None
    """Words that a tune may try although nothing was found: cheap to try, and the evidence cannot tell."""


def never_found(_measurement: Measurement) -> Found | None:
    """For methods: no step time tells whether another optimizer learns faster. A race does."""
    return None
