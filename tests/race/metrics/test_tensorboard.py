"""Event files of tensorboardX 2.6 and tensorboard 2.21 (tensors, as TensorFlow 2 writes them), and damaged ones."""

from __future__ import annotations

import math
import os
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.race.metrics.tensorboard import EventFile, _masked_crc32c, event_files

DATA = Path(__file__).parent / "data"


def test_scalars_of_tensorboardx():
    scalars = EventFile(DATA / "tensorboardX.tfevents").read()
    assert [(s.tag, s.value, s.step) for s in scalars] == [
        ("val/acc", 0.5, 10), ("train/loss", 2.25, 10), ("val/acc", 0.875, 20)
    ]  # fmt: skip
    assert all(s.wall_time > 1.7e9 for s in scalars)


def test_tensors_are_read_pictures_are_not_and_nan_is_kept():
    *tensors, last = EventFile(DATA / "tensorboard.tfevents").read()
    assert [(s.tag, s.value, s.step, s.wall_time) for s in tensors] == [
        ("epoch_val_accuracy", 0.25, 1, 1700000001.5), ("epoch_val_accuracy", 0.75, 2, 1700000002.5)
    ]  # fmt: skip
    assert (last.tag, last.step) == ("loss", -4)
    assert math.isnan(last.value)


@pytest.mark.parametrize("piece", [1, 7, 64])
def test_a_file_that_grows_gives_each_scalar_once(tmp_path: Path, piece: int):
    whole, path = (DATA / "tensorboardX.tfevents").read_bytes(), tmp_path / "events.out.tfevents.1"
    events, seen = EventFile(path), []
    for end in range(0, len(whole) + piece, piece):
        path.write_bytes(whole[:end])
        seen += events.read()
    assert [s.value for s in seen] == [0.5, 2.25, 0.875]


def test_a_huge_record_is_stepped_over_without_being_read(tmp_path: Path):
    path, length = tmp_path / "events.out.tfevents.1", 3 << 30
    whole = (DATA / "tensorboardX.tfevents").read_bytes()
    with open(path, "wb") as file:
        head = struct.pack("<Q", length)
        file.write(head + struct.pack("<I", _masked_crc32c(head)))
        os.ftruncate(file.fileno(), 12 + length + 4)  # sparse
    events = EventFile(path)
    events.read()
    for _ in range(100):
        events.read()
    with open(path, "ab") as file:
        file.write(whole)
    seen = [scalar for _ in range(100) for scalar in events.read()]
    assert [s.value for s in seen] == [0.5, 2.25, 0.875]


@given(st.integers(0, 177), st.integers(1, 255))
def test_no_damage_breaks_the_reader_or_changes_a_value(tmp_path_factory, at: int, flip: int):
    whole = bytearray((DATA / "tensorboardX.tfevents").read_bytes())
    whole[at] ^= flip
    path = tmp_path_factory.mktemp("damaged") / "x.tfevents"
    path.write_bytes(whole)
    assert {s.value for s in EventFile(path).read()} <= {0.5, 2.25, 0.875}


def test_event_files_of_a_folder_are_found_below_it(tmp_path: Path):
    path = tmp_path / "lightning_logs" / "version_0" / "events.out.tfevents.1.host"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"")
    (path.parent / "hparams.yaml").write_text("")
    assert event_files(tmp_path) == [path] == event_files(path)
