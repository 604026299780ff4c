"""What a person asked for, word by word: the options of ``vivace plan`` as values. No behaviour."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["LayoutRequest", "Request"]

IMAGE_SIDE = 224


@dataclass(frozen=True)
class LayoutRequest:
    tensor: int | None = None
    pipeline: int | None = None
    context: int | None = None
    virtual_stages: int | None = None
    sequence_parallel: bool | None = None
    zero: int | None = None
    shard_size: int | None = None
    micro_batch: int | None = None
    recompute: str | None = None
    schedule: str | None = None

    @property
    def given(self) -> bool:
        return any(value is not None for value in vars(self).values())


@dataclass(frozen=True)
class Request:
    model: str
    cluster: str | None = None
    gpu: str | None = None
    gpus: int = 1
    gpus_per_node: int = 8
    global_batch: int | None = None
    seq_len: int | None = None
    image_size: int | None = None
    precision: str | None = None
    optimizer: str | None = None
    attention: str = "flash"
    compile: bool = False
    layout: LayoutRequest = field(default_factory=LayoutRequest)
    sizes: dict[str, int] = field(default_factory=dict)

    @property
    def image_side(self) -> int:
        return IMAGE_SIDE if self.image_size is None else self.image_size
