"""Ctrl-C at any moment of the start is no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import environment

# Presses Ctrl-C when the module that the environment names is asked for.
PRESSES_CTRL_C = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background ignores it, and we inherit that
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["AT"]:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
"""


@pytest.mark.parametrize("module", ["vivace.errors", "vivace.cli.app", "typer", "vivace.cli.measure"])
def test_ctrl_c_during_the_imports(tmp_path: Path, module: str):
    (tmp_path / "sitecustomize.py").write_text(PRESSES_CTRL_C)
    path = os.pathsep.join([str(tmp_path), environment().get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "vivace", "measure", "--", "python", "x.py"],
        capture_output=True, text=True, cwd=tmp_path, env={**environment(), "PYTHONPATH": path, "AT": module},
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
