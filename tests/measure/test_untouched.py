"""The environment of a training is byte for byte the same after vivace has measured it and run it with a practice.

With a whole torch in that environment: ``make compat``.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from conftest import SCRIPTS, Done, environment

from tools.compat.untouched import changes, digests


@pytest.fixture(scope="module")
def users_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python of the user's with a package of theirs and without vivace; torch comes from ours, by a path file."""
    folder = tmp_path_factory.mktemp("user") / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "torch_of_the_cluster.pth").write_text(f"{Path(torch.__file__).parents[1]}\n")
    (site / "helper.py").write_text("LEARNING_RATE = 0.1\n")
    (site / "imported_by_nobody.py").write_text("")
    return folder / "bin" / "python"


def test_digests_see_what_changes(tmp_path: Path):
    (tmp_path / "same").write_text("1")
    (tmp_path / "other").write_text("2")
    (tmp_path / "gone").symlink_to("same")
    before = digests(tmp_path)
    (tmp_path / "other").write_text("3")
    (tmp_path / "gone").unlink()
    (tmp_path / "__pycache__").mkdir()
    assert changes(before, digests(tmp_path)) == ["new: __pycache__", "gone: gone", "changed: other"]
    assert changes(before, before) == []


def test_measure_and_run_leave_the_environment_as_it_is(
    vivace: Callable[..., Done], users_python: Path, tmp_path: Path
):
    job = tmp_path / "job"
    job.mkdir()
    script = job / "train.py"
    script.write_text(f"import sys; sys.path.insert(0, {str(SCRIPTS)!r})\nimport helper, plain\n")
    train = [str(users_python), "train.py", "--steps", "60"]
    subprocess.run(train, cwd=job, env=environment(), check=True, capture_output=True)  # as without vivace
    before = digests(users_python.parents[1]), digests(job)
    runs = str(tmp_path / "runs")
    measured = vivace("measure", "--json", "--steps", "10", "-o", runs, "--", *train, cwd=job)
    assert measured.record["status"] == "complete"
    assert vivace("run", "--with", "fused_optimizer", "-o", runs, "--", *train, cwd=job).code == 0
    assert changes(before[0], digests(users_python.parents[1])) == []
    assert changes(before[1], digests(job)) == []
