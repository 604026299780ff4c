"""The command works in a Python that has no torch: only the training process needs one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import SCRIPTS, Done, environment
from forked.process import PYTHON

# Runs at the start of every Python process of the test: torch cannot be imported, but for the measured processes.
NO_TORCH = """
import os
from importlib.machinery import PathFinder

def find_spec(name, path=None, target=None, find=PathFinder.find_spec):
    return None if name.partition(".")[0] == "torch" else find(name, path, target)

if "VIVACE_INSIDE" not in os.environ:
    PathFinder.find_spec = staticmethod(find_spec)
"""

# What only runs in a training process, or says itself that it needs torch.
MAY_IMPORT_TORCH = (
    "vivace.chaos.inside",
    "vivace.checkpoint.",
    "vivace.methods.",
    "vivace.measure.inside.",
    "vivace.practices.engine.entry",
    "vivace.practices.graphs.",
    "vivace.practices.switching",
    "vivace.practices.engine.parts",
    "vivace.practices.engine.probes",
    "vivace.practices.engine.trained",
    "vivace.demo.classifier",
    "vivace.plan.images.zoo",
    "vivace.parallel.",
    "vivace.scale.",
    "vivace.labs.sources.",  # run as scripts
    "vivace.hpo.ray_tune.",  # needs ray, which may not be there either
    "vivace.train.",
    *(
        f"vivace.recipes.{name}"
        for name in (
            "augmenting",
            "contrastive",
            "decoding",
            "evaluating",
            "faults",
            "feeding",
            "first_weights",
            "logs",
            "loop",
            "masking",
            "meters",
            "models",
            "optimizing",
            "saving",
            "sources",
            "training",
        )
    ),
    "vivace.measure.bootstrap",
    "vivace.__main__",
)

IMPORT_EVERYTHING = """
import importlib, pathlib, sys
import vivace
left_out = tuple(sys.argv[1].split(","))
root = pathlib.Path(vivace.__file__).parent
imported = 0
for path in sorted(root.rglob("*.py")):
    name = ".".join(path.relative_to(root.parent).with_suffix("").parts)
    if not name.startswith(left_out):
        importlib.import_module(name.removesuffix(".__init__"))
        imported += 1
from vivace.practices.engine.registry import all_practices
changes = [practice.change(None).environment() for practice in all_practices() if practice.change]
print(imported > 200, len(changes) > 20, "torch" in sys.modules)
"""


@pytest.fixture
def no_torch(tmp_path: Path) -> dict[str, str]:
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(NO_TORCH)
    return {"PYTHONPATH": str(site)}


@pytest.fixture
def vivace_alone(vivace: Callable[..., Done], no_torch: dict[str, str]) -> Callable[..., Done]:
    return lambda *words: vivace(*words, **no_torch)


def test_everything_of_the_command_is_imported_without_torch(no_torch: dict[str, str]):
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_EVERYTHING, ",".join(MAY_IMPORT_TORCH)],
        capture_output=True, text=True, env=environment(**no_torch), timeout=600,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("True True False\n", "")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--help", "measure"),
        ("plan llama-3-8b --cluster jean-zay-h100 --gpus 64", "llama-3-8b on 64 x H100"),
        ("plan models", "resnet50"),
        ("plan budget --help", "vivace plan budget"),
        ("hardware --json", '"torch_version": null'),
        ("practices", "channels_last"),
        ("practices compile", "torch.compile"),
        ("submit --help", "vivace submit"),
        ("find --help", "loader"),
        ("train gpt --settings", "optim.lr"),
    ],
    ids=lambda value: value.split(" --")[0] if isinstance(value, str) else value,
)
def test_what_needs_no_training(vivace_alone: Callable[..., Done], words: str, says: str):
    done = vivace_alone(*words.split())
    assert (done.code, "Traceback" in done.err) == (0, False)
    assert says in done.out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("tune", "the example needs torch"),
        ("plan resnet50 --gpu h200", "planning an image model needs torch"),
        ("train gpt --layout dp2", "training needs torch"),
    ],
    ids=["example", "image model", "training"],
)
def test_what_cannot_do_without_says_so(vivace_alone: Callable[..., Done], words: str, says: str):
    done = vivace_alone(*words.split())
    assert done.code == 2
    assert f"vivace: {says}, which this Python does not have ({sys.executable})" in " ".join(done.err.split())
    assert "hint: pip install 'vivace[torch]'" in done.err
    assert "Traceback" not in done.err


def test_a_training_is_checked_and_run(vivace_alone: Callable[..., Done], tmp_path: Path):
    """Its own Python has torch. Everything that vivace concludes, it concludes without. (A tune: ``make compat``.)"""
    train = [PYTHON, str(SCRIPTS / "plain.py")]
    checked = vivace_alone("check", "--json", "--no-probes", "--steps", "8", "--", *train)
    assert checked.code == 0, checked.err
    assert checked.record["verdict"] in {"improvable", "tuned", "unexplained", "unknown"}
    (folder,) = (tmp_path / "vivace-runs").iterdir()
    assert json.loads((folder / "measurement.json").read_text())["machine"]["torch_version"]
    assert vivace_alone("report", str(folder)).code == 0
    ran = vivace_alone("run", "--with", "fused_optimizer", "--", *train)
    assert ran.code == 0
    assert "vivace: fused_optimizer" in ran.err
