"""A vivace of another version in the user's environment is noticed and said, with real processes."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from forked.process import PYTHON

from vivace.protocol.version import PROTOCOL

SCRIPT = """
import torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(6):
    optimizer.zero_grad(); model(torch.ones(2, 4)).sum().backward(); optimizer.step()
print("trained")
"""


def with_another_vivace(folder: Path, protocol: int | None) -> list[str]:
    """A command whose Python finds, before the real one, a vivace 0.0.1 that speaks ``protocol``."""
    package = folder / "site" / "vivace"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('__version__ = "0.0.1"\n')
    if protocol is not None:
        (package / "protocol").mkdir()
        (package / "protocol" / "__init__.py").touch()
        (package / "protocol" / "version.py").write_text(f"PROTOCOL = {protocol}\n")
    (folder / "train.py").write_text(SCRIPT)
    words = [PYTHON, str(folder / "train.py")]
    return ["sh", "-c", f'PYTHONPATH="$PYTHONPATH:{folder / "site"}" exec {shlex.join(words)}']


@pytest.mark.parametrize(
    ("protocol", "speaks"), [(None, "no protocol"), (PROTOCOL + 7, f"protocol {PROTOCOL + 7}")], ids=["older", "newer"]
)
def test_measure_says_which_vivace_is_in_the_way(tmp_path: Path, vivace: Callable, protocol: int | None, speaks: str):
    done = vivace("measure", "--steps", "3", "--", *with_another_vivace(tmp_path, protocol))
    site = tmp_path / "site" / "vivace"
    says = (
        f"the command's Python has another vivace, 0.0.1 in {site}, which speaks {speaks}; "
        f"this one speaks protocol {PROTOCOL}"
    )
    assert f"nothing measured: {says}" in done.err
    assert "hint: install the same vivace in both" in done.err
    assert "trained" in done.out
    assert "Traceback" not in done.err


ANSWERS_IN_ANOTHER_WAY = """
import json, os
def enter(text):
    with open(os.path.join(json.loads(text)["folder"], "rank-0-1.json"), "w") as file:
        json.dump({"version": 99, "rank": 0, "world": 1, "total_steps": 6}, file)
    return lambda: None
"""


def test_an_answer_of_another_version_is_not_taken_for_a_measurement(tmp_path: Path, vivace: Callable):
    command = with_another_vivace(tmp_path, PROTOCOL)
    (tmp_path / "site" / "vivace" / "door.py").write_text(ANSWERS_IN_ANOTHER_WAY)
    done = vivace("measure", "--json", "--steps", "3", "--", *command)
    assert done.code == 2
    assert done.record["reason"] == (
        "nothing measured: the command's Python has another vivace: "
        f"a payload of protocol 99, and this vivace reads protocol {PROTOCOL}"
    )
    assert done.record["hint"].startswith("install the same vivace in both")


@pytest.mark.parametrize("strict", [False, True])
def test_run_trains_unchanged_and_fails_when_strict(tmp_path: Path, vivace: Callable, strict: bool):
    command = with_another_vivace(tmp_path, None)
    done = vivace("run", "--with", "fused_optimizer", *(["--strict"] if strict else []), "--", *command)
    assert done.code == (2 if strict else 0)
    assert "vivace: nothing is measured or changed: the command's Python has another vivace, 0.0.1" in done.err
    assert "no training step was seen" not in done.err
    assert done.out == "trained\n"


def test_tune_gives_that_reason(tmp_path: Path, vivace: Callable):
    done = vivace("tune", "--steps", "3", "--", *with_another_vivace(tmp_path, None))
    assert done.code != 0
    assert "the command's Python has another vivace" in done.err
