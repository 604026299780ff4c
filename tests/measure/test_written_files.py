"""Files that a command changes in its own folder are noticed; in a copy of the folder they stay as they are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import VIVACE, environment
from forked.process import PYTHON
from hypothesis import given
from hypothesis import strategies as st

from vivace.errors import UserError
from vivace.measure.copied_folder import CopyOptions, copied_folder
from vivace.measure.written_files import look, what_changed

# Loads what the folder holds, trains, and leaves a checkpoint over the old one, as scripts do at their end.
TRAIN = """
import atexit, os, sys, torch
from helper import size
print("data", open("data/words.txt").read())
model = torch.nn.Linear(size, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(torch.randn(4000, size), batch_size=int(sys.argv[2]) if len(sys.argv) > 2 else 8)
os.makedirs("logs/today", exist_ok=True)
atexit.register(lambda: open("model.pt", "w").write("new"))
open("logs/today/log.txt", "w").write("started")
for batch in loader:
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
"""
OPTIONS = ("--steps", "4", "--warmup", "2", "--no-profile")


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "helper.py").write_text("size = 8\n")
    (tmp_path / "model.pt").write_text("the user's")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "words.txt").write_text("words")
    (tmp_path / ".git").mkdir()
    return tmp_path


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {"__pycache__"}


def test_files_that_the_command_writes_are_named(vivace_here: Callable, job: Path):
    done = vivace_here("measure", *OPTIONS, "--", sys.executable, "train.py")
    written = json.loads((done.folder / "measurement.json").read_text())["written_files"]
    assert written["overwritten"] == ["model.pt"]
    assert written["made"] == [os.path.join("logs", "today", "log.txt")]
    assert (written["deleted"], written["count"], written["complete"]) == ([], 2, True)
    assert "in its folder the command overwrote model.pt; made logs/today/log.txt; --in-copy leaves it" in done.out


def test_a_file_that_our_own_output_goes_to_is_not_the_commands(job: Path):
    with (job / "out.txt").open("w") as out:
        command = [*VIVACE, "measure", *OPTIONS, "--", PYTHON, "train.py"]
        subprocess.run(command, cwd=job, env=environment(), stdout=out, check=True, timeout=600)
    (folder,) = (job / "vivace-runs").iterdir()
    assert json.loads((folder / "measurement.json").read_text())["written_files"]["count"] == 2


def test_a_search_says_it_once_for_its_first_trial(vivace_here: Callable, job: Path):
    done = vivace_here("find", "loader", "--steps", "4", "--", sys.executable, "train.py")
    assert done.err.count("the command overwrote model.pt; made logs/today/log.txt; each trial does so") == 1


def test_in_a_copy_the_folder_stays_as_it_is(vivace_here: Callable, job: Path):
    before = names(job)
    done = vivace_here("measure", "--json", *OPTIONS, "--in-copy", "--", sys.executable, "train.py")
    record = done.record
    assert (done.code, record["status"], record["written_files"]) == (0, "complete", None)
    assert (job / "model.pt").read_text() == "the user's"
    assert names(job) == before | {"vivace-runs"}
    assert "copy" not in names(done.folder)
    assert record["loaders"][0]["where"]["file"] == str(job / "train.py")
    assert f"ran in a copy of {job}" in record["notes"]


def test_the_copy_is_kept_when_asked_and_what_is_only_read_can_be_linked(vivace_here: Callable, job: Path):
    done = vivace_here(
        "measure", *OPTIONS, "--in-copy", "--keep-copy", "--link", "data", "--", sys.executable, "train.py"
    )
    copy = done.folder / "copy"
    assert (copy / "model.pt").read_text() == "new"
    assert (copy / "data").is_symlink()
    assert not (copy / ".git").exists()
    assert not (copy / "vivace-runs").exists()
    assert (job / "model.pt").read_text() == "the user's"


def test_every_trial_of_a_search_has_a_fresh_copy(vivace_here: Callable, job: Path):
    """One that finds the checkpoint of the trial before would not train from the same start."""
    (job / "train.py").write_text("assert open('model.pt').read() == \"the user's\"\n" + TRAIN)
    sizes = ("--flag", "-b", "--values", "8,16", "--steps", "4")
    done = vivace_here("find", "batch", *sizes, "--in-copy", "--json", "--", sys.executable, "train.py", "-b", "8")
    assert [(one["size"], one["outcome"]) for one in done.record["tried"]] == [(8, "ok"), (16, "ok")]
    assert (job / "model.pt").read_text() == "the user's"
    assert "overwrote" not in done.err
    assert {path.name for path in done.folder.rglob("copy")} == set()


def test_a_folder_that_is_too_large_is_refused_and_its_largest_parts_are_named(vivace_here: Callable, job: Path):
    os.truncate(job / "data" / "words.txt", 5 * 2**30)  # sparse: it takes no room
    done = vivace_here("measure", "--in-copy", "--", sys.executable, "train.py")
    assert done.code == 2
    assert "of 5.0 GiB (data 5.00 GiB, " in done.err
    assert "--link NAME" in done.err
    assert not list((job / "vivace-runs").iterdir())


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--link", "data"), "--link needs --in-copy"),
        (("--keep-copy",), "--keep-copy needs --in-copy"),
        (("--in-copy", "--link", "../other"), "not a path inside"),
        (("--in-copy", "--link", "nothing"), "there is no such file or folder"),
    ],
)
def test_a_users_mistake_is_one_sentence(vivace_here: Callable, job: Path, options: tuple[str, ...], sentence: str):
    done = vivace_here("measure", *options, "--", sys.executable, "train.py")
    assert done.code == 2
    assert sentence in done.err
    assert "Traceback" not in done.err


def test_links_lead_to_the_same_places_in_a_copy(tmp_path: Path):
    source = tmp_path / "job"
    (source / "sub").mkdir(parents=True)
    (tmp_path / "outside").write_text("outside")
    (source / "own.txt").write_text("own")
    (source / "sub" / "up").symlink_to("../own.txt")
    (source / "out").symlink_to("../outside")
    (source / ".venv").mkdir()
    (source / ".venv" / "pyvenv.cfg").touch()
    run = source / "runs" / "x-001"
    run.mkdir(parents=True)
    with copied_folder(source, run, CopyOptions()) as copy:
        (copy / "own.txt").write_text("changed")
        assert (copy / "sub" / "up").read_text() == "changed"
        assert (copy / "out").read_text() == "outside"
        assert (copy / ".venv").resolve() == source / ".venv"
        assert names(copy) == {"sub", "own.txt", "out", ".venv"}
    assert (source / "own.txt").read_text() == "own"
    assert not copy.exists()


def test_what_cannot_be_read_is_named(tmp_path: Path):
    (tmp_path / "secret").write_text("x")
    (tmp_path / "secret").chmod(0)
    if os.access(tmp_path / "secret", os.R_OK):
        pytest.skip("this user may read everything")
    with pytest.raises(UserError, match="secret"), copied_folder(tmp_path, tmp_path / "runs", CopyOptions()):
        pass


@given(st.dictionaries(st.sampled_from("abcdef"), st.sampled_from(["keep", "write", "delete", "make"])))
def test_every_change_is_seen_and_nothing_else(tmp_path_factory: pytest.TempPathFactory, actions: dict[str, str]):
    folder = tmp_path_factory.mktemp("job")
    for name, action in actions.items():
        (folder / name).mkdir()
        if action != "make":
            (folder / name / "file").write_text("before")
    before = look(folder, folder / "runs")
    for name, action in actions.items():
        if action in ("write", "make"):
            (folder / name / "file").write_text("after it")
        elif action == "delete":
            (folder / name / "file").unlink()
    seen = what_changed(before, look(folder, folder / "runs"))
    by_kind = {kind: {os.path.join(n, "file") for n, a in actions.items() if a == kind} for kind in actions.values()}
    if not set(by_kind) - {"keep"}:
        assert seen is None
        return
    assert seen is not None
    assert set(seen.overwritten) == by_kind.get("write", set())
    assert set(seen.made) == by_kind.get("make", set())
    assert set(seen.deleted) == by_kind.get("delete", set())


def test_a_large_folder_is_not_looked_through_and_nothing_unseen_is_claimed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("vivace.measure.written_files._MOST_FILES", 3)
    for number in range(5):
        (tmp_path / f"top{number}").touch()
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "unseen").touch()
    before = look(tmp_path, tmp_path / "runs")
    assert not before.complete
    (tmp_path / "deep" / "unseen").write_text("changed")
    (tmp_path / "top0").write_text("changed")
    seen = what_changed(before, look(tmp_path, tmp_path / "runs"))
    assert seen is not None
    assert (seen.overwritten, seen.made, seen.complete) == (("top0",), (), False)
