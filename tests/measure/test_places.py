"""Whose code is a line? Wherever our modules lie in the package, they are never taken for the user's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import environment

import vivace
from vivace.measure.inside.places import is_library

PACKAGE = Path(vivace.__file__).parent


@pytest.mark.parametrize("folder", ["measure/inside", "practices"])
def test_every_module_that_runs_in_the_process_is_ours(folder: str):
    modules = sorted((PACKAGE / folder).rglob("*.py"))
    assert len(modules) > 20
    assert [str(path) for path in modules if not is_library(str(path))] == []


def test_torch_is_known_and_a_script_is_the_users():
    assert is_library(torch.nn.modules.linear.__file__)
    assert not is_library(os.path.abspath("train.py"))


LIBRARY = """
def ask():
    from vivace.measure.inside.places import user_place
    return user_place()
"""
SCRIPT = """
import os, sys, json
sys.path[:0] = [os.path.join(os.path.dirname(__file__), name) for name in ("third_party", "packed.zip")]
import elsewhere, vendored, packed, own.part
from vivace.measure.inside.places import user_frame
def line(): return sys._getframe(1).f_lineno
found = {
    "elsewhere": [elsewhere.ask(), line()],
    "vendored": [vendored.ask(), line()],
    "packed": [packed.ask(), line()],
}
own_place = own.part.ask()
frame, via = elsewhere.look(user_frame)
print(json.dumps([found, own_place, via.f_code.co_filename, frame.f_code.co_filename]))
"""


@pytest.fixture
def told(tmp_path: Path) -> list[Any]:
    """What a script in one folder is told about lines in libraries that lie in all sorts of places."""
    job, outside = tmp_path / "job", tmp_path / "outside"
    (job / "third_party").mkdir(parents=True)
    (job / "own").mkdir()
    outside.mkdir()
    look = "\ndef look(user_frame):\n    import sys\n    return user_frame(sys._getframe())\n"
    (outside / "elsewhere.py").write_text(LIBRARY + look)
    (job / "third_party" / "vendored.py").write_text(LIBRARY)
    (job / "own" / "part.py").write_text(LIBRARY)
    with zipfile.ZipFile(job / "packed.zip", "w") as archive:
        archive.writestr("packed.py", LIBRARY)
    (job / "train.py").write_text(SCRIPT)
    path = os.pathsep.join([str(outside), str(PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, str(job / "train.py")], cwd=tmp_path / "job" / "own", text=True, capture_output=True,
        env=environment(PYTHONPATH=path), check=True,
    )  # fmt: skip
    return [*json.loads(done.stdout), job, outside]


def test_the_users_own_line_is_named_wherever_the_library_lies(told: list[Any]):
    found, own_place, via, frame, job, outside = told
    for place, line in found.values():
        assert (place["file"], place["line"]) == (str(job / "train.py"), line)
    assert own_place["file"] == str(job / "own" / "part.py")  # a module of the script's folder is the user's own
    assert (via, frame) == (str(outside / "elsewhere.py"), str(job / "train.py"))
