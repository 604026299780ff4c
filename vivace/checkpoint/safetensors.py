"""The safetensors format, read and written without its package: a JSON header and raw bytes, nothing to execute.

    save_safetensors(model.state_dict(), "model.safetensors")
    model.load_state_dict(load_safetensors("model.safetensors"))

Reading is bounded and checked as the format asks: the header must fit the file, tensors must lie in it one after
another without holes or overlaps, and have as many bytes as their shape and dtype say. Files are those of the
``safetensors`` package, in both directions.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from vivace.checkpoint.errors import Refused, RefusedError
from vivace.preemption.durable import write_durably

__all__ = ["load_safetensors", "save_safetensors"]

_MOST_HEADER = 100_000_000  # as the package's own limit
_LENGTH = struct.Struct("<Q")
_METADATA = "__metadata__"
_NAMES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
    torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
    torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2",
}  # fmt: skip
_DTYPES = {name: dtype for dtype, name in _NAMES.items()}


def save_safetensors(
    tensors: Mapping[str, torch.Tensor], path: str | os.PathLike[str], metadata: Mapping[str, str] | None = None
) -> None:
    """Whole or not there. Tensors that share memory are written each for itself. Raises ``TypeError``."""
    header: dict[str, Any] = {_METADATA: dict(metadata)} if metadata else {}
    offset = 0
    # The largest alignment first, then by name, as the package does: equal states make equal files.
    order = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    for name in order:
        tensor = tensors[name]
        if tensor.dtype not in _NAMES or tensor.layout is not torch.strided:
            raise TypeError(f"{name} is a tensor of {tensor.dtype} ({tensor.layout}), which safetensors cannot hold")
        size = tensor.numel() * tensor.element_size()
        shape = list(tensor.shape)
        header[name] = {"dtype": _NAMES[tensor.dtype], "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)

    def write(file: Any) -> None:
        file.write(_LENGTH.pack(len(text)))
        file.write(text)
        for name in order:
            _write(tensors[name], file)

    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    write_durably(target, write)


def load_safetensors(path: str | os.PathLike[str]) -> dict[str, torch.Tensor]:
    """All tensors, on the CPU. Raises ``RefusedError`` for a file that is not what the format says."""
    path = Path(path)
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        header, start = _read_header(file, size, path)
        entries = {name: _checked(name, entry, path) for name, entry in header.items() if name != _METADATA}
        _check_places(entries, size - start, path)
        found = {}
        for name, (dtype, shape, begin, end) in entries.items():
            file.seek(start + begin)
            data = bytearray(end - begin)
            if file.readinto(data) != end - begin:
                raise _refusal(path, f"ends in the middle of {name}")
            found[name] = _tensor_of(data, dtype, shape)
    return found


def _write(tensor: torch.Tensor, file: Any) -> None:
    """Straight from its memory: without a copy, and without numpy."""
    flat = tensor.detach().cpu().contiguous()
    size = flat.numel() * flat.element_size()
    if size:
        file.write(memoryview((ctypes.c_char * size).from_address(flat.data_ptr())))


def _tensor_of(data: bytearray, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    if not data:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(data, dtype=torch.uint8).view(dtype).reshape(shape)


def _read_header(file: Any, size: int, path: Path) -> tuple[dict[str, Any], int]:
    first = file.read(_LENGTH.size)
    if len(first) < _LENGTH.size:
        raise _refusal(path, "is too short to be one")
    (length,) = _LENGTH.unpack(first)
    if length > min(_MOST_HEADER, size - _LENGTH.size):
        raise _refusal(path, f"has a header of {length:,} bytes, and {size:,} in all")
    try:
        header = json.loads(file.read(length), object_pairs_hook=_without_doubles)
    except (ValueError, RecursionError) as error:
        raise _refusal(path, f"has a header that cannot be read ({error})") from None
    if not isinstance(header, dict):
        raise _refusal(path, "has a header that is no JSON object")
    return header, _LENGTH.size + length


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name twice")
    return found


def _checked(name: str, entry: Any, path: Path) -> tuple[torch.dtype, tuple[int, ...], int, int]:
    try:
        dtype, shape, (begin, end) = _DTYPES[entry["dtype"]], tuple(entry["shape"]), entry["data_offsets"]
        numbers = (*shape, begin, end)
    except (KeyError, TypeError, ValueError):
        raise _refusal(path, f"describes {name!r} in another way than the format") from None
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise _refusal(path, f"has a size of {name!r} that is none")
    if math.prod(shape) * dtype.itemsize != end - begin:
        raise _refusal(path, f"has {end - begin:,} bytes for {name!r}, of the shape {shape} and {dtype}")
    return dtype, shape, begin, end


def _check_places(entries: Mapping[str, tuple[Any, Any, int, int]], room: int, path: Path) -> None:
    at = 0
    for name, (_dtype, _shape, begin, end) in sorted(entries.items(), key=lambda one: one[1][2:]):
        if begin != at:
            raise _refusal(path, f"has a hole or an overlap before {name!r}")
        at = end
    if at != room:
        raise _refusal(path, f"has {room:,} bytes of tensors, and its header says {at:,}")


def _refusal(path: Path, text: str) -> RefusedError:
    return RefusedError(Refused.UNSAFE, f"{path} {text}: it is no safetensors file, or a damaged one", (path,))
