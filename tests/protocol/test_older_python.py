"""What both sides import runs on Python 3.9; what the process needs of vivace compiles there."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
INSIDE = ("vivace/__init__.py", "vivace/door.py", "vivace/errors.py", "vivace/hardware/software.py")
FOLDERS = ("vivace/protocol", "vivace/measure/bootstrap", "vivace/measure/inside", "vivace/practices")

CHECK = """
import importlib, pkgutil, sys
import vivace.protocol
for module in pkgutil.iter_modules(vivace.protocol.__path__):
    importlib.import_module(f"vivace.protocol.{module.name}")
from vivace.protocol.answers import NOT_MET, answers_from_text, answers_to_text
from vivace.protocol.ending import TIME_OVER, Ended
from vivace.protocol.gpu_names import KnownGpu
from vivace.protocol.payload import Payload
from vivace.protocol.progress import SeenProgress
from vivace.protocol.request import Entry, ProcessRequest
request = ProcessRequest("x", entry=Entry.PRACTICES, practices=("bf16",), known_gpus=(KnownGpu(("a",), ("b*",)),))
assert ProcessRequest.from_text(request.to_text()) == request
assert Ended.from_text(TIME_OVER.to_text()) == TIME_OVER
assert answers_from_text(answers_to_text({"bf16": NOT_MET})) == {"bf16": NOT_MET}
assert SeenProgress.from_text(SeenProgress(1, "measuring", 2, None, 3).to_text()).steps == 3
assert '"total_steps": 5' in Payload(total_steps=5).to_text()
for path in sys.argv[1:]:
    compile(open(path, encoding="utf-8").read(), path, "exec")
print(sys.version_info[:2], f"{Entry.PRACTICES}")
"""


def older_python() -> str | None:
    installed = (str(path) for path in Path.home().glob(".pyenv/versions/3.9.*/bin/python3.9"))
    return next(installed, None) or shutil.which("python3.9")


@pytest.mark.skipif(older_python() is None, reason="no Python 3.9 here")
def test_the_protocol_runs_and_the_inside_compiles_on_python_3_9():
    paths = [ROOT / name for name in INSIDE]
    paths += [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    done = subprocess.run(
        [str(older_python()), "-c", CHECK, *map(str, paths)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.stdout, done.stderr) == ("(3, 9) practices\n", "")
