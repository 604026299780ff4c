"""``ScaleCheck``: would a command scale to more ranks? What was measured and what is predicted, by check --ranks."""

from __future__ import annotations

from pydantic import Field

from vivace.records.base import Part, Record
from vivace.records.equality import Equality
from vivace.records.machine import Machine
from vivace.records.scale import SplitFacts

__all__ = ["MemoryOfMode", "Prediction", "ScaleCheck", "Timed"]


class Timed(Part):
    """One run, timed."""

    ranks: int
    samples_per_s: float | None = None
    step_ms: float = Field(description="mean")
    phases_ms: dict[str, float] = Field(default_factory=dict, description="mean per step")
    exposed_communication_ms: float | None = Field(
        None, description="per step, that a rank spends in exchanges and waiting for others; mean of the ranks"
    )
    waiting_ms: float | None = Field(None, description="the part of it in which it waits for slower ranks")
    host_memory_gib: float | None = Field(None, description="largest resident memory of a rank")
    device_memory_gib: float | None = Field(None, description="largest peak of a rank")


class MemoryOfMode(Part):
    """GiB that one rank keeps, by arithmetic. Activations and the batch come on top."""

    mode: str
    parameters_gib: float
    gradients_gib: float
    states_gib: float
    block_gib: float = Field(0.0, description="fsdp: parameters of the largest model that are put together at a time")

    @property
    def total_gib(self) -> float:
        return self.parameters_gib + self.gradients_gib + self.states_gib + self.block_gib


class Prediction(Part):
    """By arithmetic from the run of one process and the links of a machine: no measurement."""

    ranks: int
    network: str
    exchange_ms: float = Field(description="of all gradients, per step, if nothing hides it")
    exposed_ms: float | None = Field(None, description="what the backward pass does not hide")
    step_ms: float | None = None
    efficiency: float | None = Field(None, description="speedup over one process, over the number of ranks")
    assumptions: tuple[str, ...] = ()


class ScaleCheck(Record):
    KIND = "scale-check"

    command: tuple[str, ...]
    mode: str
    ranks: int = Field(description="that were asked for")
    one: Timed
    split: Timed = Field(description="on as many ranks as this machine has room for")
    speedup: float = Field(gt=0, description="of those ranks over one process; one run each")
    efficiency: float = Field(gt=0)
    facts: SplitFacts
    equality: Equality
    memory: tuple[MemoryOfMode, ...] = ()
    prediction: Prediction | None = None
    why_not_predicted: str | None = None
    machine: Machine
    notes: tuple[str, ...] = ()
