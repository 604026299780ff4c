"""Checkpoint files: whole or not there, checked when they are loaded, with older ones to fall back on."""

from __future__ import annotations

import os
import random
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import environment

from vivace.preemption import CheckpointError, load_newest, save_atomically


def state(step: int) -> dict[str, Any]:
    return {"step": step, "weights": torch.full((500,), float(step))}


def save(path: Path, *steps: int, keep: int = 1) -> None:
    for step in steps:
        save_atomically(state(step), path, keep=keep)


def steps_in(folder: Path) -> dict[str, int]:
    return {file.name: torch.load(file, weights_only=True)["step"] for file in sorted(folder.iterdir())}


def flip_bit(file: Path, bit: int) -> None:
    data = bytearray(file.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    file.write_bytes(data)


def bit_of_weights(file: Path) -> int:
    """A bit of a weight: torch.load reads another number and says nothing."""
    return 8 * file.read_bytes().index(torch.full((4,), 2.0).numpy().tobytes()) + 30


def test_the_newest_are_kept_and_no_more(tmp_path: Path):
    assert load_newest(tmp_path / "last.pt") is None
    assert load_newest(tmp_path / "no folder" / "last.pt") is None
    save(tmp_path / "last.pt", 1, 2, 3, 4, keep=3)
    assert steps_in(tmp_path) == {"last.pt": 4, "last.pt.1": 3, "last.pt.2": 2}
    assert load_newest(tmp_path / "last.pt")["step"] == 4
    save(tmp_path / "alone.pt", 1, 2)
    assert not (tmp_path / "alone.pt.1").exists()
    with pytest.raises(ValueError, match="keep must be 1 or more"):
        save(tmp_path / "last.pt", 5, keep=0)


def test_a_flipped_bit_that_torch_does_not_see_falls_back_and_is_named(tmp_path: Path, capsys: Any):
    path = tmp_path / "last.pt"
    save(path, 1, 2, keep=2)
    flip_bit(path, bit_of_weights(path))
    assert torch.load(path, weights_only=True)["weights"].min() == 0  # this is what trained on with NaN
    loaded = load_newest(path)
    assert torch.equal(loaded["weights"], state(1)["weights"])
    said = capsys.readouterr().err
    assert f"{path} has a wrong checksum in " in said
    assert f"{path}.1 is loaded instead" in said
    # The damaged one is out of the rotation: a save cannot push the good one out for it.
    save(path, 3, keep=2)
    assert [file.name for file in sorted(tmp_path.iterdir())] == ["last.pt", "last.pt.1", "last.pt.damaged"]
    assert load_newest(tmp_path / "last.pt.1")["step"] == 1


def test_any_flipped_bit_gives_the_saved_values_or_the_ones_before(tmp_path: Path):
    """Law: what is loaded was saved, bit for bit, wherever the damage is."""
    path, dice = tmp_path / "last.pt", random.Random(0)
    save(path, 1, 2, keep=2)
    newest, before = path.read_bytes(), Path(f"{path}.1").read_bytes()
    seen = {1: 0, 2: 0}
    for _ in range(100):
        path.write_bytes(newest)
        Path(f"{path}.1").write_bytes(before)
        flip_bit(path, dice.randrange(len(newest) * 8))
        loaded = load_newest(path)
        assert torch.equal(loaded["weights"], state(loaded["step"])["weights"])
        seen[loaded["step"]] += 1
    assert seen[1] > 50  # most bits count; the others are padding between the parts
    assert seen[2] > 0


@pytest.mark.parametrize(("size", "sentence"), [(0, "is empty"), (1000, "is truncated or no checkpoint")])
def test_damage_without_a_way_back_names_the_file(tmp_path: Path, size: int, sentence: str):
    path = tmp_path / "last.pt"
    save(path, 1)
    os.truncate(path, size)
    with pytest.raises(CheckpointError, match=sentence) as caught:
        load_newest(path)
    assert str(path) in str(caught.value)
    assert caught.value.files == (path,)
    assert path.exists()  # left for its owner to look at


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("pwned",)


def test_nothing_in_a_checkpoint_is_executed_and_an_older_one_is_not_taken_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    save(tmp_path / "last.pt", 1)
    save_atomically({"step": Evil()}, "last.pt", keep=2)
    with pytest.raises(CheckpointError, match=r"last\.pt holds more than tensors and plain values"):
        load_newest("last.pt")
    assert not Path("pwned").exists()


def test_a_device_that_is_not_there_is_no_damage(tmp_path: Path, capsys: Any):
    save(tmp_path / "last.pt", 1, 2, keep=2)
    with pytest.raises(RuntimeError):
        load_newest(tmp_path / "last.pt", map_location="no such device")
    assert (tmp_path / "last.pt").exists()
    assert capsys.readouterr().err == ""


def test_links_and_the_umask_are_kept(tmp_path: Path):
    (tmp_path / "scratch").mkdir()
    link = tmp_path / "last.pt"
    link.symlink_to(tmp_path / "scratch" / "data.pt")
    before = os.umask(0o027)
    try:
        save(link, 1, 2, keep=2)
    finally:
        os.umask(before)
    assert link.is_symlink()
    assert steps_in(tmp_path / "scratch") == {"data.pt": 2, "data.pt.1": 1}
    assert stat.S_IMODE((tmp_path / "scratch" / "data.pt").stat().st_mode) == 0o640
    assert load_newest(link)["step"] == 2


def test_sums_are_written_though_the_script_has_turned_them_off(tmp_path: Path):
    torch.serialization.set_crc32_options(False)
    try:
        save(tmp_path / "last.pt", 2)
        assert torch.serialization.get_crc32_options() is False
    finally:
        torch.serialization.set_crc32_options(True)
    assert load_newest(tmp_path / "last.pt")["step"] == 2


def test_a_full_disk_keeps_the_old_file_and_names_the_new_one(tmp_path: Path):
    path = tmp_path / "last.pt"
    save(path, 1)

    def full(_state: Any, file: Any) -> None:
        """As torch meets it: the archive's end raises about its position, over the error that says why."""
        try:
            with open("/dev/full", "wb", buffering=0) as disk:
                disk.write(b"x")
        finally:
            raise RuntimeError("unexpected pos 704 vs 598")

    with pytest.raises(OSError, match=r"No space left on device.*last\.pt"):
        save_atomically(state(2), path, write=full)
    assert steps_in(tmp_path) == {"last.pt": 1}


def test_a_process_killed_while_it_saves_leaves_the_old_file_and_no_litter_for_ever(tmp_path: Path):
    path = tmp_path / "last.pt"
    save(path, 1)
    program = (
        "import os, signal, sys\nfrom vivace.preemption import save_atomically\n"
        "def die(state, file):\n    file.write(b'half'); file.flush(); os.kill(os.getpid(), signal.SIGKILL)\n"
        "save_atomically(0, sys.argv[1], write=die)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], env=environment(), timeout=600)
    assert done.returncode == -signal.SIGKILL
    assert load_newest(path)["step"] == 1
    (half,) = (file for file in tmp_path.iterdir() if file != path)
    save(path, 2)
    assert half.exists()  # it may be another process's, which is still writing
    os.utime(half, (time.time() - 7200,) * 2)
    save(path, 3)
    assert steps_in(tmp_path) == {"last.pt": 3}
