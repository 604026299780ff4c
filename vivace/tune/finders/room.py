"""How much memory a measured run left free: on the GPU of the rank with the least room, or on the host."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from vivace.errors import UserError
from vivace.records.measurement import Measurement

__all__ = ["Room", "parse_gib", "room_of"]

_UNITS_GIB = {"GIB": 1.0, "GB": 1e9 / 2**30, "G": 1.0, "MIB": 2.0**-10, "MB": 1e6 / 2**30, "M": 2.0**-10}


@dataclass(frozen=True)
class Room:
    memory: Literal["GPU", "host"]
    used_gib: float
    limit_gib: float

    @property
    def left_gib(self) -> float:
        return self.limit_gib - self.used_gib


def room_of(record: Measurement) -> Room | None:
    """None where it cannot be told: no figures, or ranks on several hosts without GPUs."""
    devices = [rank.memory for rank in record.ranks if rank.memory is not None]
    if record.memory.device is not None:
        devices.append(record.memory.device)
    if devices:
        tightest = min(devices, key=lambda device: device.total_gib - device.reserved_peak_gib)
        return Room("GPU", tightest.reserved_peak_gib, tightest.total_gib)
    host = record.memory.host
    if host is None or len({rank.host for rank in record.ranks}) > 1:
        return None
    limit = record.machine.memory_limit_gib or record.machine.memory_gib
    return Room("host", host.rss_peak_gib + host.children_rss_gib, limit)


def parse_gib(text: str) -> float:
    """
    >>> parse_gib("2GiB"), parse_gib("512 MiB")
    (2.0, 0.5)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*", text)
    if match is None or match[2].upper() not in _UNITS_GIB:
        raise UserError(f"--margin {text!r} is not an amount of memory", hint="--margin 2GiB or --margin 512MiB")
    return float(match[1]) * _UNITS_GIB[match[2].upper()]
