"""``vivace run`` adds little to a start: what it imports before the training starts, and what it brings into it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import environment

# Prints what has been imported when the training is about to start, and does not start it.
PARENT = """
import json, subprocess, sys
def start(words, **_):
    print(json.dumps(sorted(sys.modules)))
    raise SystemExit(0)
subprocess.Popen = start
sys.argv = ["vivace", "run", "--with", "bf16,workers=2,compile,fused_optimizer", "--", "true"]
from vivace.cli.app import main
main()
"""
CHILD = """
import json, sys, torch
print(json.dumps(sorted(sys.modules)))
"""
HEAVY = {"torch", "numpy", "jinja2", "matplotlib", "psutil", "pynvml"}  # pydantic: typer imports it itself


@pytest.fixture(scope="module")
def in_the_command(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    return _printed([sys.executable, "-c", PARENT], tmp_path_factory.mktemp("parent"))


@pytest.fixture(scope="module")
def in_the_training(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    words = [sys.executable, "-m", "vivace", "run", "--with", "fused_optimizer", "--", sys.executable, "-c", CHILD]
    return _printed(words, tmp_path_factory.mktemp("child"))


def _printed(words: list[str], folder: Path) -> set[str]:
    done = subprocess.run(words, cwd=folder, env=environment(), capture_output=True, text=True, timeout=600)
    return set(json.loads(done.stdout))


def test_nothing_heavy_is_imported_before_the_training_starts(in_the_command: set[str]):
    assert "vivace.tune.running" in in_the_command
    assert in_the_command & HEAVY == set()


def test_what_measures_and_tunes_is_not_imported(in_the_command: set[str]):
    ours = {name for name in in_the_command if name.startswith("vivace.")}
    assert not [name for name in ours if name.startswith(("vivace.tune.", "vivace.cli.")) and _is_another(name)]
    assert not [name for name in ours if name.startswith(("vivace.report", "vivace.plan", "vivace.launch"))]
    assert not {"vivace.measure.measuring", "vivace.records.proof", "vivace.records.run"} & ours
    assert "vivace.scale.launcher" not in ours  # one process needs no launcher


def _is_another(name: str) -> bool:
    """Of another command than ``run``."""
    commands = ("measure", "check", "tune", "find", "plan", "submit", "searching", "tuning", "trials", "proving")
    return name.rpartition(".")[2] in commands


def test_a_training_that_is_not_measured_does_not_import_what_measures(in_the_training: set[str]):
    assert "vivace.practices.engine.parts" in in_the_training
    assert "vivace.practices.fused_optimizer" in in_the_training
    assert not {"vivace.measure.inside.session", "vivace.measure.inside.install"} & in_the_training
    assert not {"torch.utils.flop_counter", "torch._dynamo", "pydantic", "rich", "typer"} & in_the_training
