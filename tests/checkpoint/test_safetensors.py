"""The safetensors format: what is written is read again, and what is not of the format is refused."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vivace.checkpoint import RefusedError
from vivace.checkpoint.safetensors import load_safetensors, save_safetensors

DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int8, torch.uint8, torch.bool)


@settings(max_examples=30)
@given(
    shapes=st.lists(st.lists(st.integers(0, 5), max_size=3), max_size=5),
    dtypes=st.lists(st.sampled_from(DTYPES), min_size=5, max_size=5),
)
def test_all_that_is_written_is_read_again(tmp_path_factory: Any, shapes: list[list[int]], dtypes: list[torch.dtype]):
    path = tmp_path_factory.mktemp("s") / "model.safetensors"
    tensors = {
        f"layer.{i}": (torch.randn(shape) * 100).to(dtype).transpose(0, -1) if shape else torch.tensor(3).to(dtype)
        for i, (shape, dtype) in enumerate(zip(shapes, dtypes, strict=False))
    }
    save_safetensors(tensors, path, {"format": "pt"})
    found = load_safetensors(path)
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert (found[name].dtype, found[name].shape) == (tensor.dtype, tensor.shape)
        assert torch.equal(found[name], tensor)


def test_the_bytes_are_those_of_the_format(tmp_path: Path):
    """Worked by hand from the format's description: eight bytes of length, JSON, then the numbers."""
    save_safetensors({"w": torch.tensor([[1.0, 2.0]])}, tmp_path / "m")
    header = b'{"w":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}}'
    assert len(header) % 8 == 0
    assert (tmp_path / "m").read_bytes() == struct.pack("<Q", len(header)) + header + struct.pack("<ff", 1.0, 2.0)


def test_the_package_reads_ours_and_we_read_its(tmp_path: Path):
    package = pytest.importorskip("safetensors.torch", reason="safetensors is not installed: pip install safetensors")
    tensors = {"a": torch.randn(3, 4), "b": torch.arange(5), "c": torch.randn(2).bfloat16()}
    save_safetensors(tensors, tmp_path / "ours", {"format": "pt"})
    package.save_file(tensors, tmp_path / "theirs", {"format": "pt"})
    for found in (package.load_file(tmp_path / "ours"), load_safetensors(tmp_path / "theirs")):
        assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())


def written(path: Path, header: Any, data: bytes = b"", length: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)
    return path


def entry(begin: int = 0, end: int = 8, shape: Any = (2,), dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


@pytest.mark.parametrize(
    ("header", "data", "length", "says"),
    [
        ({}, b"", 2**62, "has a header of"),
        (b"\xff\xfe", b"", None, "cannot be read"),
        (b"[" * 100_000, b"", None, "cannot be read"),
        ([], b"", None, "no JSON object"),
        (b'{"w": 1, "w": 2}', b"", None, "a name twice"),
        ({"w": {"dtype": "F32"}}, b"", None, "in another way"),
        ({"w": entry(dtype="PICKLE")}, b"x" * 8, None, "in another way"),
        ({"w": entry(shape=[-2])}, b"x" * 8, None, "a size of 'w' that is none"),
        ({"w": entry(shape=[True, 2])}, b"x" * 8, None, "a size of 'w' that is none"),
        ({"w": entry(shape=[3])}, b"x" * 8, None, "has 8 bytes for 'w'"),
        ({"w": entry(shape=[2**40, 2**40])}, b"x" * 8, None, "has 8 bytes for 'w'"),
        ({"w": entry(4, 12)}, b"x" * 12, None, "a hole or an overlap before 'w'"),
        ({"v": entry(), "w": entry(4, 12)}, b"x" * 12, None, "a hole or an overlap before 'w'"),
        ({"w": entry()}, b"x" * 7, None, "has 7 bytes of tensors, and its header says 8"),
        ({"w": entry()}, b"x" * 9, None, "has 9 bytes of tensors, and its header says 8"),
    ],
)
def test_what_is_not_of_the_format_is_refused(tmp_path: Path, header: Any, data: bytes, length: int | None, says: str):
    with pytest.raises(RefusedError, match=says):
        load_safetensors(written(tmp_path / "m", header, data, length))


def test_what_the_format_cannot_hold(tmp_path: Path):
    with pytest.raises(TypeError, match=r"w is a tensor of torch\.complex64"):
        save_safetensors({"w": torch.zeros(2, dtype=torch.complex64)}, tmp_path / "m")
    assert list(tmp_path.iterdir()) == []
