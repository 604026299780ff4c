"""No damage gives wrong values: the load falls back on the checkpoint before, or refuses with a sentence."""

from __future__ import annotations

import os
import pickle
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from checkpoint import damage
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed.checkpoint.api import CheckpointException

from vivace.checkpoint import CheckpointError, Checkpoints, NotSaved, Refused, RefusedError, TrainState
from vivace.checkpoint.errors import Damage, Damaged, DamageKind
from vivace.checkpoint.names import COMPLETE, INDEX, OWNER


def tensors(step: int) -> dict[str, Any]:
    return {
        "weight": torch.arange(40.0) + 1000 * step,
        "moments": {"first": torch.full((3, 5), 0.5 * step)},
        "note": f"s{step}",
    }


def empty() -> dict[str, Any]:
    return {"weight": torch.zeros(40), "moments": {"first": torch.zeros(3, 5)}, "note": ""}


def load(folder: Path) -> tuple[int, dict[str, Any]] | None:
    state = empty()
    checkpoints = Checkpoints(folder)
    found = checkpoints.load(state)
    return None if found is None else (found.step, state)


def is_exactly(state: dict[str, Any], step: int) -> bool:
    saved = tensors(step)
    return torch.equal(state["weight"], saved["weight"]) and torch.equal(
        state["moments"]["first"], saved["moments"]["first"]
    )


@pytest.fixture(scope="session")
def two_steps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints of steps 1 and 2, for everybody to copy."""
    folder = tmp_path_factory.mktemp("checkpoints")
    with Checkpoints(folder) as checkpoints:
        for step in (1, 2):
            checkpoints.save(tensors(step), TrainState(step, more={"seen": step}))
    return folder


@pytest.fixture
def copied(two_steps: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(two_steps, tmp_path / "checkpoints"))


def newest(folder: Path) -> Path:
    return folder / "step-00000002"


def test_whole_ones_load_exactly(copied: Path):
    step, state = load(copied)
    assert step == 2
    assert is_exactly(state, 2)
    assert state["note"] == "s2"


@pytest.mark.parametrize("kind", damage.DAMAGES)
def test_the_one_before_is_loaded_instead(copied: Path, kind: str, capsys: pytest.CaptureFixture[str]):
    what = damage.DAMAGES[kind](newest(copied), random.Random(kind))
    step, state = load(copied)
    assert (step, is_exactly(state, 1)) == (1, True), what
    said = capsys.readouterr().err
    if kind == "missing marker":
        assert "unfinished save" in said
        assert newest(copied).exists()
    else:
        assert "is damaged" in said
        assert "set aside as step-00000002.damaged; step 1 is loaded instead" in said
        assert not newest(copied).exists()
    assert load(copied)[0] == 1
    assert "damaged" not in capsys.readouterr().err


@settings(max_examples=60)
@given(place=st.integers(0, 10**9), bit=st.integers(0, 7), older=st.booleans())
def test_any_flipped_bit_of_any_file(
    two_steps: Path, tmp_path_factory: pytest.TempPathFactory, place: int, bit: int, older: bool
):
    """Also with the older one damaged in the same place: then nothing is loaded, and nothing is wrong."""
    folder = Path(shutil.copytree(two_steps, tmp_path_factory.mktemp("flip") / "c"))
    sizes = [(path, path.stat().st_size) for path in damage.files_of(newest(folder)) if path.name != OWNER]
    place %= sum(size for _path, size in sizes)
    while place >= sizes[0][1]:
        place -= sizes.pop(0)[1]
    path = sizes[0][0]
    damage.flip_bit(path, 8 * place + bit)
    if not older:
        step, state = load(folder)
        assert (step, is_exactly(state, 1)) == (1, True), (path.name, place, bit)
        return
    damage.flip_bit(folder / "step-00000001" / COMPLETE, 100)
    with pytest.raises(RefusedError) as caught:
        load(folder)
    assert caught.value.why is Refused.ALL_DAMAGED
    assert "step-00000001" in str(caught.value)
    assert "step-00000002" in str(caught.value)


def test_plain_dcp_executes_an_evil_index(tmp_path: Path):
    """What the allow-list is for: if torch mends this, this test says so."""
    dcp.save(tensors(1), checkpoint_id=str(tmp_path / "plain"))
    (tmp_path / "plain" / INDEX).write_bytes(pickle.dumps(damage.Evil(tmp_path / "executed")))
    with pytest.raises(CheckpointException):
        dcp.load(empty(), checkpoint_id=str(tmp_path / "plain"))
    assert (tmp_path / "executed").is_dir()


def test_plain_dcp_executes_an_evil_value(tmp_path: Path):
    dcp.save({**tensors(1), "note": damage.Evil(tmp_path / "executed")}, checkpoint_id=str(tmp_path / "plain"))
    dcp.load(empty(), checkpoint_id=str(tmp_path / "plain"))
    assert (tmp_path / "executed").is_dir()


@pytest.mark.parametrize(
    ("evil", "says"),
    [
        (damage.evil_index, r"asks for (posix|os|nt)\.mkdir"),
        (damage.evil_value, "note holds more than tensors and plain values"),
        (damage.evil_state, "state-00000.pt holds more than"),
    ],
)
def test_ours_refuses_what_is_evil(copied: Path, evil: Callable, says: str):
    evil(newest(copied), random.Random(1))
    with pytest.raises(RefusedError, match=says) as caught:
        load(copied)
    assert caught.value.why is Refused.UNSAFE
    assert not (copied / "executed").exists()


def test_what_could_not_be_loaded_again_is_not_saved(tmp_path: Path):
    with Checkpoints(tmp_path) as checkpoints:
        with pytest.raises(TypeError, match="TrainState holds more than tensors and plain values"):
            checkpoints.save(tensors(1), TrainState(1, more={"path": tmp_path}))
        with pytest.raises(TypeError, match="note holds more than tensors"):
            checkpoints.save({**tensors(1), "note": tmp_path}, TrainState(1))
        assert list(tmp_path.iterdir()) == []


def _rewritten(change: Callable[[Any], None]) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        metadata = pickle.loads((folder / INDEX).read_bytes())
        change(metadata)
        (folder / INDEX).write_bytes(pickle.dumps(metadata))
        damage.bless(folder)

    return write


def _points_elsewhere(metadata: Any) -> None:
    for place in metadata.storage_data.values():
        place.relative_path = "../../secret"


def _points_behind(metadata: Any) -> None:
    for place in metadata.storage_data.values():
        place.length = 10**9


@pytest.mark.parametrize(
    ("change", "says"),
    [(_points_elsewhere, "'../../secret', which is not in the manifest"), (_points_behind, "behind the end")],
)
def test_an_index_with_right_sums_that_points_out_of_its_files(copied: Path, change: Callable, says: str):
    _rewritten(change)(newest(copied))
    with pytest.raises(RefusedError, match=says):
        load(copied)


def test_a_manifest_with_a_path_in_it(copied: Path, capsys: pytest.CaptureFixture[str]):
    manifest = newest(copied) / "manifest-00000.json"
    manifest.write_text(manifest.read_text().replace("state-00000.pt", "../../etc/passwd"))
    damage.bless(newest(copied))
    assert load(copied)[0] == 1
    assert "'../../etc/passwd' is no name of a file" in capsys.readouterr().err


def test_another_model_is_refused_and_left_alone(copied: Path):
    for state, says in (
        ({**empty(), "weight": torch.zeros(41)}, r"has weight with the shape \(40,\), which is \(41,\) here"),
        (
            {**empty(), "weight": torch.zeros(40, dtype=torch.bfloat16)},
            "has weight in torch.float32, which is torch.bfloat16",
        ),
        ({**empty(), "bias": torch.zeros(1)}, "has no bias"),
        ({"weight": torch.zeros(40)}, "also has moments.first, note, which nobody asked for"),
        ({**empty(), "note": torch.zeros(1)}, "has a plain value as note, which is a tensor here"),
    ):
        with pytest.raises(RefusedError, match=says) as caught:
            Checkpoints(copied).load(state)
        assert caught.value.why is Refused.OTHER_MODEL
    assert Checkpoints(copied).load({"weight": torch.zeros(40)}, partial=True) is not None
    assert newest(copied).exists()


@pytest.mark.parametrize(
    "error",
    [
        RefusedError(Refused.UNSAFE, "why", (Path("x"),)),
        NotSaved("why", OSError(28, "full")),
        CheckpointError("why", [Path("y")]),
        Damaged(Damage(DamageKind.SUM, "f", "is other")),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_reach_the_other_ranks(error: Exception):
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again).keys()) == (type(error), str(error), vars(error).keys())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_may_not_be_read_is_no_damage(copied: Path):
    (newest(copied) / COMPLETE).chmod(0)
    with pytest.raises(CheckpointError, match="Permission denied"):
        load(copied)
