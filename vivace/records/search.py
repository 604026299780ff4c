"""``BatchSearch`` and ``LoaderSearch``: every setting that was run, how it went, and the one that is recommended."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from vivace.records.base import Part, Record
from vivace.records.machine import Machine
from vivace.records.measurement import Spread
from vivace.records.trial import Outcome

__all__ = ["BatchSearch", "BatchTried", "LoaderSearch", "LoaderTried"]


class BatchTried(Part):
    """One size in one fresh process. ``size`` is the flag's value, ``batch_size`` what was measured."""

    size: int
    outcome: Outcome
    batch_size: int | None = Field(None, description="samples per optimizer step and rank, as measured")
    global_batch_size: int | None = None
    samples_per_s: float | None = None
    step_ms: Spread | None = None
    memory_gib: float | None = Field(None, description="peak of the rank with the least room")
    margin_gib: float | None = Field(None, description="room left over that peak; None: not known")
    ranks: int = 0
    message: str = ""
    trial: str = Field("", description="its folder")

    @property
    def trained(self) -> bool:
        return self.outcome is Outcome.OK and self.samples_per_s is not None


class BatchSearch(Record):
    """``knee`` and ``largest`` are sizes that ran and left the margin; None when none did."""

    KIND = "batch-search"

    command: tuple[str, ...]
    flag: str
    own_size: int | None = Field(None, description="the script's own, in the flag's terms")
    tried: tuple[BatchTried, ...] = Field(description="the smallest first")
    margin_gib: float
    memory: Literal["GPU", "host"] | None = Field(None, description="which memory the margin is about")
    limit_gib: float | None = None
    knee: int | None = Field(None, description="the smallest size within 5 % of the best throughput")
    largest: int | None = Field(None, description="the largest size that leaves the margin")
    first_too_large: int | None = Field(None, description="the smallest size that did not fit or left less")
    complete: bool = False
    interrupted: bool = Field(False, description="by Ctrl-C")
    ended: str = Field("", description="why the search went no further")
    advice: tuple[str, ...] = Field((), description="what another batch changes, as proposals")
    run_with: str = Field("", description="the command with the recommended size")
    notes: tuple[str, ...] = ()
    machine: Machine | None = None


class LoaderTried(Part):
    """One setting of the loader in one fresh process. ``words``: empty for the script's own."""

    words: tuple[str, ...] = ()
    workers: int
    prefetch: int | None = None
    outcome: Outcome
    samples_per_s: float | None = None
    step_ms: Spread | None = None
    loader_ms: float | None = Field(None, description="mean wait for the loader, per step")
    workers_memory_gib: float | None = Field(None, description="resident in the worker processes, all ranks")
    workers_busy: float | None = Field(None, description="share of the time in which a worker ran or wanted a core")
    most_workers: int | None = Field(
        None, description="that make sense per rank: the cores, or more where workers mostly wait; None: no figures"
    )
    message: str = ""
    trial: str = ""

    @property
    def trained(self) -> bool:
        return self.outcome is Outcome.OK and self.samples_per_s is not None


class LoaderSearch(Record):
    KIND = "loader-search"

    command: tuple[str, ...]
    tried: tuple[LoaderTried, ...] = Field(description="in the order they ran, the script's own first")
    limits: bool = Field(description="whether the loader holds the script's own setting back")
    workers: int | None = Field(None, description="of the smallest setting within 3 % of the best")
    prefetch: int | None = None
    words: tuple[str, ...] = Field((), description="for `run --with`; empty: the script's own setting is the one")
    speedup: float | None = Field(None, description="over the script's own setting, one run each")
    complete: bool = False
    interrupted: bool = False
    ended: str = ""
    run_with: str = ""
    by_hand: str = ""
    notes: tuple[str, ...] = ()
    machine: Machine | None = None
