"""``Layout``: how one training is spread over processes. Planned by ``plan``, carried by ``submit``, run by ``train``.

As text: ``dp2,fs2,tp2,pp2,cp1`` (replicas, shards, tensor, pipeline, context), then what differs from the usual. It is
a field of versioned records (``Plan``, ``TrainSettings``); alone it goes to JSON and back too.
"""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError, model_validator
from pydantic.dataclasses import dataclass

from vivace.errors import UserError

__all__ = ["LAYOUT_WORDS", "Layout", "Recompute", "Schedule", "parse_layout"]

Recompute = Literal["none", "selective", "full"]
Schedule = Literal["1f1b", "interleaved", "gpipe", "zb1p", "zbv"]

LAYOUT_WORDS = (
    "dp2 replicas, fs2 shards (FSDP), tp2 tensor, pp2 pipeline, cp2 context; also mb4 (micro-batch), zero1 or zero2, "
    "v2 (stages per rank), gpipe, 1f1b, interleaved, zb1p, zbv, nosp, recompute-selective, recompute-full"
)
"""What the text of a layout may contain: for help and hints."""

_SIZE = re.compile(r"(dp|fs|tp|pp|cp|mb|v|zero)(\d{1,6})")
_SCHEDULES = ("1f1b", "interleaved", "gpipe", "zb1p", "zbv")


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Layout:
    """Degrees of parallelism; their product is the number of processes. ``data`` counts shares of the batch."""

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    virtual_stages: int = 1
    """Stages of the pipeline per rank."""
    sequence_parallel: bool = False
    """With tensor parallelism: norms and residuals are split along the sequence."""
    zero: int = 0
    """0 replicated (DDP), 1 optimizer, 2 + gradients, 3 + parameters (FSDP full shard)."""
    shard_size: int = 0
    """Ranks over which states are sharded; 0 means all of ``data``; less is hybrid sharding."""
    micro_batch: int = 1
    recompute: Recompute = "none"
    schedule: Schedule = "1f1b"

    @model_validator(mode="before")
    @classmethod
    def _older(cls, values: Any) -> Any:
        """Plans of an earlier vivace hold the number of micro-batches, which follows from the global batch."""
        if not isinstance(values, dict):
            return values
        return {name: value for name, value in values.items() if name != "micro_batches"}

    @property
    def gpus(self) -> int:
        return self.data * self.tensor * self.pipeline * self.context

    @property
    def model_parallel(self) -> int:
        return self.tensor * self.pipeline * self.context

    @property
    def shard(self) -> int:
        """Ranks that hold one copy of the states together; 1 without sharding."""
        return (self.shard_size or self.data) if self.zero else 1

    @property
    def replicas(self) -> int:
        """Copies of the states."""
        return self.data // self.shard

    @property
    def shards(self) -> int:
        """Over how many ranks states are cut (context ranks hold the same weights and take part)."""
        return (self.shard_size or self.data) * self.context

    @property
    def stages(self) -> int:
        return self.pipeline * self.virtual_stages

    def micro_batches(self, global_batch: int) -> int:
        return max(1, global_batch // (self.data * self.micro_batch))

    def to_json(self) -> str:
        return _JSON.dump_json(self, indent=2).decode() + "\n"

    @classmethod
    def from_json(cls, text: str) -> Layout:
        try:
            return _JSON.validate_json(text)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(step) for step in first["loc"]) or "the text"
            raise UserError(f"not a layout: {where}: {first['msg']}") from None

    def __str__(self) -> str:
        """
        >>> str(Layout(data=4, tensor=2, zero=3, shard_size=2, sequence_parallel=True, micro_batch=2))
        'dp2,fs2,tp2,mb2'
        """
        alone = not self.zero and self.model_parallel == 1
        words = [f"dp{self.replicas}"] if self.replicas > 1 or alone else []
        words += [f"fs{self.shard}"] if self.zero else []
        sizes = (("tp", self.tensor), ("pp", self.pipeline), ("cp", self.context), ("v", self.virtual_stages))
        words += [f"{name}{size}" for name, size in sizes if size > 1]
        words += [f"mb{self.micro_batch}"] if self.micro_batch > 1 else []
        words += [f"zero{self.zero}"] if self.zero in (1, 2) else []
        words += [self.schedule] if self.schedule != _usual_schedule(self.virtual_stages) else []
        words += {(True, False): ["nosp"], (False, True): ["sp"]}.get((self.tensor > 1, self.sequence_parallel), [])
        words += [f"recompute-{self.recompute}"] if self.recompute != "none" else []
        return ",".join(words)


_JSON = TypeAdapter(Layout)


def _usual_schedule(virtual_stages: int) -> Schedule:
    return "interleaved" if virtual_stages > 1 else "1f1b"


def parse_layout(text: str) -> Layout:
    """
    >>> parse_layout("dp2,tp2,pp2")
    Layout(data=2, tensor=2, pipeline=2, context=1, virtual_stages=1, sequence_parallel=True, zero=0, shard_size=0, \
micro_batch=1, recompute='none', schedule='1f1b')
    """
    sizes: dict[str, int] = {}
    others: list[str] = []
    for word in (part.strip() for part in text.split(",") if part.strip()):
        match = _SIZE.fullmatch(word)
        name = match[1] if match else word
        if name in sizes or name in others:
            raise UserError(f"the layout {text!r} says {name} twice", hint=f"e.g. dp2,tp2; {LAYOUT_WORDS}")
        if match:
            sizes[name] = int(match[2])
        else:
            others.append(word)
    return _layout(text, sizes, others)


def _layout(text: str, sizes: dict[str, int], others: list[str]) -> Layout:
    known = (*_SCHEDULES, "sp", "nosp", "recompute-none", "recompute-selective", "recompute-full")
    for word in others:
        if word not in known:
            raise UserError(f"the layout {text!r} has a word that is not known: {word}", hint=LAYOUT_WORDS)
    if wrong := next((name for name, size in sizes.items() if size < 1 and name != "zero"), None):
        raise UserError(f"the layout {text!r} has {wrong}0", hint="sizes are 1 or more; leave out what is 1")
    zero = sizes.get("zero", 3 if "fs" in sizes else 0)
    if zero > 3 or (zero == 0 and "fs" in sizes):
        raise UserError(f"the layout {text!r} has ZeRO stage {zero}", hint="zero1, zero2 or zero3 (the default of fs)")
    replicas, shard, virtual = sizes.get("dp", 1), sizes.get("fs", 1), sizes.get("v", 1)
    schedules = [word for word in others if word in _SCHEDULES]
    recompute = [word.removeprefix("recompute-") for word in others if word.startswith("recompute-")]
    if len(schedules) > 1 or len(recompute) > 1 or {"sp", "nosp"} <= set(others):
        raise UserError(f"the layout {text!r} contradicts itself", hint="one schedule, one recompute-…")
    return Layout(
        data=replicas * shard,
        tensor=sizes.get("tp", 1),
        pipeline=sizes.get("pp", 1),
        context=sizes.get("cp", 1),
        virtual_stages=virtual,
        sequence_parallel="sp" in others or (sizes.get("tp", 1) > 1 and "nosp" not in others),
        zero=zero,
        shard_size=shard if "fs" in sizes and replicas > 1 else 0,
        micro_batch=sizes.get("mb", 1),
        recompute=recompute[0] if recompute else "none",  # type: ignore[arg-type]
        schedule=schedules[0] if schedules else _usual_schedule(virtual),  # type: ignore[arg-type]
    )
