"""A process that cannot be measured says why, in every command; it trains on, unchanged."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Done

from vivace.protocol.ending import Ended, Ending
from vivace.protocol.unmeasured import read_unmeasured, tell_unmeasured

VERSION = ".".join(map(str, sys.version_info[:3]))
HINT = "hint: vivace measures Python 3.9 and torch 2.4, and newer; the training itself ran unchanged"


@pytest.fixture
def strange_torch(tmp_path: Path) -> Path:
    """A script with a torch that has nothing of what vivace asks for. It trains (it prints that it does)."""
    package = tmp_path / "job" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('__version__ = "0.4.1"\n')
    script = tmp_path / "job" / "train.py"
    script.write_text("import torch\nprint('trained')\n")
    return script


@pytest.mark.parametrize("words", [["measure"], ["check"], ["tune", "--budget", "1"]], ids=lambda words: words[0])
def test_a_torch_that_vivace_does_not_know(vivace: Callable[..., Done], strange_torch: Path, words: list[str]):
    done = vivace(*words, "--", sys.executable, str(strange_torch))
    said = " ".join(done.err.split())
    assert f"vivace cannot enter this process (Python {VERSION}, torch 0.4.1): ModuleNotFoundError: No module" in said
    assert "optimizer" not in said
    assert "Traceback" not in done.err


def test_measure_adds_what_can_be_measured(vivace: Callable[..., Done], strange_torch: Path):
    done = vivace("measure", "--json", "--", sys.executable, str(strange_torch))
    assert done.record["reason"].startswith(f"nothing measured: vivace cannot enter this process (Python {VERSION}")
    assert f"hint: {done.record['hint']}" == HINT


@pytest.mark.parametrize("strict", [False, True])
def test_run_trains_unchanged_and_records_why(vivace: Callable[..., Done], strange_torch: Path, strict: bool):
    words = ["run", "--with", "bf16", *(["--strict"] if strict else [])]
    done = vivace(*words, "--", sys.executable, str(strange_torch))
    assert (done.code, done.out) == (2 if strict else 0, "trained\n")
    assert done.err.count("vivace cannot enter this process") == 1
    assert "no training step was seen" not in done.err
    told = json.loads((done.folder / "run.json").read_text())["told"]["bf16"]
    assert told["state"] == "refused"
    assert told["text"].startswith("vivace cannot enter this process")
    assert sorted(path.name for path in done.folder.iterdir() if path.suffix == ".json") == ["run.json"]


@pytest.mark.parametrize("version", ["3.6", "3.7", "3.8"])
def test_a_python_that_is_too_old(vivace: Callable[..., Done], strange_torch: Path, version: str):
    found = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    if not found:
        pytest.skip(f"no Python {version} here")
    done = vivace("measure", "--", str(found[0]), str(strange_torch))
    said = " ".join(done.err.split())
    assert f"nothing measured: vivace cannot enter this process (Python {version}." in said
    assert "torch 0.4.1): this Python is too old" in said
    assert HINT in said
    assert "trained" in done.out


RECORD_FAILS = """
import torch
from vivace.measure.inside import payload

def write(*_):
    raise KeyError("planted")

payload.write = write
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(4):
    optimizer.zero_grad(); model(torch.ones(2, 4)).sum().backward(); optimizer.step()
print("trained")
"""


def test_an_error_of_vivace_itself_is_the_reason(vivace: Callable[..., Done], tmp_path: Path):
    (tmp_path / "train.py").write_text(RECORD_FAILS)
    done = vivace("measure", "--", sys.executable, "train.py")
    says = "nothing measured: vivace's own error: the record could not be written: KeyError: 'planted'"
    assert says in " ".join(done.err.split())
    assert "trained" in done.out


def test_what_a_process_leaves_is_read_again(tmp_path: Path):
    why = Ended(Ending.OWN_ERROR, "an error – with words beyond ASCII")
    assert read_unmeasured(tmp_path) is None
    tell_unmeasured(tmp_path, why)
    (tmp_path / "unmeasured-0.json").write_text("not JSON")
    assert read_unmeasured(tmp_path) == why
