"""``vivace submit`` where there is no Slurm: what it says of a missing queue and of a missing script."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from vivace.errors import UserError
from vivace.launch.target import find_target

SUBMIT = ("submit", "--cluster", "jean-zay-h100", "--dry-run", "--")


def sinfo_that_fails(folder: Path) -> None:
    program = folder / "sinfo"
    program.write_text("#!/bin/sh\necho 'sinfo: fatal: Could not establish a configuration source' >&2\nexit 1\n")
    program.chmod(0o755)


@pytest.mark.parametrize("installed", [True, False])
def test_without_a_slurm_that_answers_the_hint_names_both_ways_out(
    installed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    if installed:
        sinfo_that_fails(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError) as caught:
        find_target(None)
    said = "sinfo refused: fatal: Could not establish" if installed else "sinfo was not found"
    assert said in caught.value.message
    assert "--cluster NAME" in caught.value.hint
    assert "--launcher local" in caught.value.hint


def test_a_script_that_is_not_here_is_told_and_the_job_is_made(vivace_here: Callable, tmp_path: Path):
    done = vivace_here(*SUBMIT, "python", "nofile.py")
    assert done.code == 0, done.err
    assert f"note: nofile.py does not exist here ({tmp_path})" in done.err
    assert "python nofile.py" in done.out


@pytest.mark.parametrize("words", [("python", "here.py"), ("python", "-m", "mine"), ("python", "$WORK/mine.py")])
def test_a_script_that_is_here_or_cannot_be_known_needs_no_note(
    vivace_here: Callable, tmp_path: Path, words: tuple[str, ...]
):
    (tmp_path / "here.py").write_text("")
    done = vivace_here(*SUBMIT, *words)
    assert done.code == 0, done.err
    assert done.err == ""
