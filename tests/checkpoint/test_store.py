"""What a save leaves behind, what it deletes, and what it does when the system refuses."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoint.lives import Life, losses
from hypothesis import given, settings
from hypothesis import strategies as st

from vivace.checkpoint import Best, Checkpoints, Mode, NotSaved, OnError, Phase, RefusedError, Saved, TrainState
from vivace.checkpoint.manifest import Complete
from vivace.checkpoint.names import COMPLETE, OWNER
from vivace.checkpoint.owner import ABANDONED_S
from vivace.checkpoint.retention import obsolete
from vivace.checkpoint.scan import Found, scan
from vivace.preemption.job_files import VARIABLE


def state(step: int) -> dict[str, Any]:
    return {"weight": torch.full((4,), float(step))}


def save(folder: Path, *steps: int, **options: Any) -> list[Saved]:
    with Checkpoints(folder, **options) as checkpoints:
        return [checkpoints.save(state(step), TrainState(step)) for step in steps]


def loaded(folder: Path, **options: Any) -> tuple[int, float]:
    values = state(0)
    found = Checkpoints(folder).load(values, **options)
    assert found is not None
    return found.step, values["weight"][0].item()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_nothing_saved_is_nothing_loaded(tmp_path: Path):
    assert Checkpoints(tmp_path / "new").load(state(0)) is None
    assert not (tmp_path / "new").exists()
    with pytest.raises(RefusedError, match="no checkpoint of step 7"):
        Checkpoints(tmp_path).load(state(0), step=7)


def test_the_last_and_the_best_are_kept(tmp_path: Path):
    with Checkpoints(tmp_path, keep=2, best=Best("accuracy", Mode.MAX)) as checkpoints:
        for step, accuracy in ((1, 0.2), (2, 0.9), (3, math.nan), (4, 0.4), (5, 0.5)):
            checkpoints.save(state(step), TrainState(step, metrics={"accuracy": accuracy}))
    assert names(tmp_path) == ["step-00000002", "step-00000004", "step-00000005"]
    assert loaded(tmp_path) == (5, 5.0)
    assert loaded(tmp_path, step=2) == (2, 2.0)


@settings(max_examples=100)
@given(
    values=st.lists(st.one_of(st.none(), st.floats()), max_size=8),
    keep=st.integers(1, 4),
    count=st.integers(0, 3),
    mode=st.sampled_from(Mode),
)
def test_what_is_obsolete(values: list[float | None], keep: int, count: int, mode: Mode):
    """The newest always stay, and nothing better goes while something worse stays as the best."""
    found = [
        Found(Path(str(i)), i, Complete("", i, i, 1, (), {} if value is None else {"m": value}))
        for i, value in reversed(list(enumerate(values)))
    ]
    gone = obsolete(found, keep, Best("m", mode, count))
    kept = [one for one in found if one.folder not in gone]
    assert kept[:keep] == found[:keep]
    rest = [one.complete.metrics["m"] for one in kept[keep:]]
    assert len(rest) <= count
    sign = 1 if mode is Mode.MIN else -1
    for one in found:
        if one.folder in gone:
            value = one.complete.metrics.get("m", math.nan)
            assert math.isnan(value) or all(sign * value >= sign * other for other in rest)


def test_a_return_to_an_older_step_counts_from_there(tmp_path: Path):
    save(tmp_path, 10, 20, 30)
    with Checkpoints(tmp_path, keep=2) as checkpoints:
        assert checkpoints.load(state(0), step=10).step == 10
        checkpoints.save({"weight": torch.full((4,), 20.5)}, TrainState(20))
        assert names(tmp_path) == ["step-00000020.2", "step-00000030"]
    assert loaded(tmp_path) == (20, 20.5)


def test_modes_follow_the_umask_and_the_job_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "job"))
    (tmp_path / "job.state").write_text("listening\n\n")
    before = os.umask(0o027)
    try:
        save(tmp_path / "c", 1)
    finally:
        os.umask(before)
    folder = tmp_path / "c" / "step-00000001"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o750
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o640}
    assert (tmp_path / "job.state").read_text() == f"listening\n{folder}\n"


def test_a_save_in_the_background_is_of_the_moment_it_was_asked_for(tmp_path: Path):
    may_write = threading.Event()

    def hold(phase: Phase) -> None:
        if phase is Phase.PLANNED:
            assert may_write.wait(60)

    values: dict[str, Any] = {
        "weight": torch.ones(1000),
        "nested": {"list": [1, 2], "half": torch.ones(3, dtype=torch.half)},
    }
    progress = TrainState(1, more={"seen": [1]})
    torch.manual_seed(3)
    with Checkpoints(tmp_path, on_phase=hold) as checkpoints:
        checkpoints.save_in_background(values, progress)
        values["weight"].fill_(2)
        values["nested"]["half"].fill_(2)
        values["nested"]["list"].append(3)
        progress.more["seen"].append(2)
        after = torch.rand(3)
        assert not list(tmp_path.glob(f"*/{COMPLETE}"))
        may_write.set()
        assert checkpoints.wait().folder == tmp_path / "step-00000001"
        found = checkpoints.load(values)
    assert values["weight"].unique().tolist() == [1.0]
    assert values["nested"]["half"].tolist() == [1, 1, 1]
    assert values["nested"]["list"] == [1, 2]
    assert found.more == {"seen": [1]}
    assert found.restore_random()
    assert torch.equal(torch.rand(3), after)


def test_what_fails_in_the_background_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    def fail(phase: Phase) -> None:
        if phase is Phase.WRITTEN:
            raise RuntimeError("the planted error")

    checkpoints = Checkpoints(tmp_path, on_phase=fail)
    checkpoints.save_in_background(state(1), TrainState(1))
    with pytest.raises(RuntimeError, match="the planted error"):
        checkpoints.wait()
    assert "step 1 failed in the background: the planted error" in capsys.readouterr().err
    assert names(tmp_path) == []
    checkpoints.on_phase = lambda phase: (_ for _ in ()).throw(OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)))
    checkpoints.save_in_background(state(2), TrainState(2))
    assert checkpoints.wait().error is not None
    assert "STEP 2 WAS NOT SAVED: Disk quota exceeded" in capsys.readouterr().err


def test_leftovers_of_the_dead_go_and_those_of_the_living_stay(tmp_path: Path):
    """Whose writer lives, whose is gone, whose wrote elsewhere lately or long ago, and half a deletion."""
    save(tmp_path, 1)
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    owner = json.loads((tmp_path / "step-00000001" / OWNER).read_text())
    owners = {
        "step-00000002.tmp-a1": owner,
        "step-00000002.tmp-a2": {**owner, "pid": int(gone.stdout)},
        "step-00000002.tmp-a3": {**owner, "host": "elsewhere"},
        "step-00000002.tmp-a4": {**owner, "host": "elsewhere"},
        "step-00000002.trash-a5": owner,
        "step-00000003": {**owner, "pid": int(gone.stdout)},
        "step-00000004": owner,
        "my own notes": owner,
    }
    for name, whose in owners.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / OWNER).write_text(json.dumps(whose))
    old = (tmp_path / "step-00000001").stat().st_mtime - ABANDONED_S - 60
    for path in (tmp_path / "step-00000002.tmp-a4" / OWNER, tmp_path / "step-00000002.tmp-a4"):
        os.utime(path, (old, old))
    (tmp_path / "step-00000009").symlink_to(tmp_path / "step-00000001")
    save(tmp_path, 5)
    assert names(tmp_path) == [
        "my own notes", "step-00000001", "step-00000002.tmp-a1", "step-00000002.tmp-a3", "step-00000004",
        "step-00000005", "step-00000009",
    ]  # fmt: skip
    assert [one.step for one in scan(tmp_path).marked] == [5, 1]


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    folder.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True
    ).returncode:
        pytest.skip("a small disk needs root and mount")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_warns_or_stops_and_leaves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    large = {"weight": torch.zeros(2**19)}  # 2 MiB
    with small_disk(tmp_path / "disk", "4m") as disk:
        with Checkpoints(disk, keep=1) as checkpoints:
            assert checkpoints.save(large, TrainState(1)).error is None
            assert "the save needs 3.0 MiB, and" in checkpoints.save(large, TrainState(2)).error
            said = capsys.readouterr().err
            assert "THE CHECKPOINT OF STEP 2 WAS NOT SAVED: No space left on device" in said
            assert "The newest one is of step 1" in said
            assert "The training goes on." in said
            assert names(disk) == ["step-00000001"]
        (disk / "filler").write_bytes(b"x" * 2**20)
        with Checkpoints(disk, on_error=OnError.STOP) as checkpoints, pytest.raises(NotSaved, match="STEP 3"):
            checkpoints.save(large, TrainState(3))


def test_a_disk_that_fills_up_while_we_write(tmp_path: Path):
    """What the look before the save cannot see: somebody else takes the room."""
    large = {"weight": torch.zeros(2**18), "more": torch.zeros(2**18)}
    with small_disk(tmp_path / "disk", "4m") as disk:

        def fill(phase: Phase) -> None:
            if phase is Phase.PLANNED:
                (disk / "filler").write_bytes(b"x" * (5 * 2**19))

        with Checkpoints(disk, on_phase=fill) as checkpoints:
            assert "No space left" in checkpoints.save(large, TrainState(1)).error
        assert names(disk) == ["filler"]


def test_a_file_in_the_place_of_the_folder(tmp_path: Path):
    (tmp_path / "c").write_text("")
    assert save(tmp_path / "c", 1)[0].error is not None
    with pytest.raises(NotSaved):
        save(tmp_path / "c", 1, on_error=OnError.STOP)


def test_two_ranks_go_on_when_the_disk_is_full(tmp_path: Path):
    """And both come to the same end."""
    with small_disk(tmp_path / "disk", "600k") as disk:
        ended = Life(disk, 12, 2, ("--width", "4000")).wait()
        assert ended.codes == [0, 0], ended.err
        assert "WAS NOT SAVED" in ended.err
        assert losses(disk)[-1] == "done"
        ended = Life(disk, 20, 2, ("--width", "4000", "--on-error", "stop")).wait()
        assert ended.codes == [1, 1]
        assert "NotSaved: THE CHECKPOINT OF STEP 5" in ended.err
