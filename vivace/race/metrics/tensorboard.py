"""Reads scalars from TensorBoard's event files while they are written, with the standard library alone.

A file is a row of records: length (8 bytes), its checksum, the data, its checksum (TFRecord). The data is a protocol
buffer ``Event``: wall time, step, and a ``Summary`` of tagged values. Only numbers are taken; images, histograms and
graphs are stepped over. Nothing in the file is executed, and no record above 1 MiB is read.
Format: https://github.com/tensorflow/tensorboard, tensorboard/compat/proto/{event,summary}.proto.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["EventFile", "Scalar", "event_files"]

EVENT_FILE = "*tfevents*"
_LARGEST_RECORD = 1 << 20
_LARGEST_LENGTH = 1 << 36  # of a record that is stepped over; more is damage
_MOST_A_POLL = 64 << 20
_FLOAT_TENSOR, _DOUBLE_TENSOR = 1, 2


@dataclass(frozen=True)
class Scalar:
    tag: str
    value: float
    step: int
    wall_time: float


def event_files(place: Path) -> list[Path]:
    """``place`` itself, or the event files in that folder and below it, the oldest first."""
    found = [place] if place.is_file() else [path for path in place.rglob(EVENT_FILE) if path.is_file()]
    return sorted(found, key=lambda path: path.stat().st_mtime)


class EventFile:
    """One file from ``offset`` on; ``read`` returns what has come since the last call."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self.path, self.offset = path, offset
        self.damaged = False

    def read(self) -> list[Scalar]:
        if self.damaged:
            return []
        scalars: list[Scalar] = []
        try:
            with open(self.path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                for data in self._records(file.fileno(), size):
                    scalars += _scalars(data)
        except OSError:
            return scalars
        except _DamagedError:
            self.damaged = True
        return scalars

    def _records(self, file: int, size: int) -> Iterator[bytes]:
        begin_before = self.offset + _MOST_A_POLL
        while self.offset + 16 <= size and self.offset < begin_before:
            head = os.pread(file, 12, self.offset)
            length, checksum = struct.unpack("<QI", head)
            if length > _LARGEST_LENGTH or checksum != _masked_crc32c(head[:8]):
                raise _DamagedError
            following = self.offset + 16 + length
            if following > size:
                return  # not written to its end yet
            if length <= _LARGEST_RECORD:
                data = os.pread(file, length + 4, self.offset + 12)
                if struct.unpack("<I", data[length:])[0] != _masked_crc32c(data[:length]):
                    raise _DamagedError
                yield data[:length]
            self.offset = following


class _DamagedError(Exception):
    pass


def _scalars(event: bytes) -> list[Scalar]:
    """The numbers of one ``Event``; none of one that cannot be read."""
    wall_time, step = 0.0, 0
    values: list[tuple[str, float]] = []
    try:
        for number, field in _fields(event):
            if number == 1 and isinstance(field, bytes):
                (wall_time,) = struct.unpack("<d", field)
            elif number == 2 and isinstance(field, int):
                step = field - (1 << 64) if field >> 63 else field
            elif number == 5 and isinstance(field, bytes):
                values += [value for inner, one in _fields(field) if inner == 1 and (value := _value(one))]
    except (ValueError, struct.error, UnicodeDecodeError, IndexError):
        return []
    return [Scalar(tag, value, step, wall_time) for tag, value in values]


def _value(field: int | bytes) -> tuple[str, float] | None:
    """A ``Summary.Value``: tag (1), simple_value (2), tensor (8)."""
    tag, value = "", None
    for number, one in _fields(field if isinstance(field, bytes) else b""):
        if number == 1 and isinstance(one, bytes):
            tag = one.decode()
        elif number == 2 and isinstance(one, bytes):
            (value,) = struct.unpack("<f", one)
        elif number == 8 and isinstance(one, bytes):
            value = _tensor(one)
    return (tag, value) if tag and value is not None else None


def _tensor(data: bytes) -> float | None:
    """A ``TensorProto`` of one number: dtype (1), tensor_content (4), float_val (5), double_val (6)."""
    kind, content = _FLOAT_TENSOR, b""
    for number, one in _fields(data):
        if number == 1 and isinstance(one, int):
            kind = one
        elif number in (4, 5, 6) and isinstance(one, bytes):
            content = one
    layout = {_FLOAT_TENSOR: "<f", _DOUBLE_TENSOR: "<d"}.get(kind)
    if layout is None or len(content) != struct.calcsize(layout):
        return None
    value: float = struct.unpack(layout, content)[0]
    return value


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(number, value) of each field of a protocol buffer: integers as they are, the rest as bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        wire = key & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        if wire == 2:
            length, at = _varint(data, at)
        elif wire in (1, 5):
            length = 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire}")
        if at + length > len(data):
            raise ValueError("a field goes beyond its message")
        yield key >> 3, data[at : at + length]
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("a number of more than 64 bits")


def _crc_table() -> list[int]:
    table = []
    for number in range(256):
        for _ in range(8):
            number = (number >> 1) ^ (0x82F63B78 if number & 1 else 0)
        table.append(number)
    return table


_CRC_TABLE = _crc_table()


def _masked_crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli), rotated and shifted as TFRecord stores it.

    >>> hex(_masked_crc32c(b"123456789"))
    '0xc78ab0e5'
    """
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC_TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
