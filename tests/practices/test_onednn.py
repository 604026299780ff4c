"""oneDNN: found and switched on again where a script switched it off."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from practices.changed import run_with
from practices.evidence import measurement

from vivace.practices.onednn import find
from vivace.tune.trials import TrialSettings, run_trial

ROLES = {"convolution": 60.0, "norm": 30.0}


def test_found_when_switched_off():
    found = find(measurement(on_gpu=False, roles=ROLES, flags={"onednn": False}))
    assert found is not None
    assert found.exposed_ms == pytest.approx(60.0)


@pytest.mark.parametrize(
    "present",
    [
        {"flags": {"onednn": True}},
        {"flags": {}},  # a record of an older version does not say
        {"flags": {"onednn": False}, "on_gpu": True},
        {"flags": {"onednn": False}, "roles": {"matmul": 90.0}},
    ],
)
def test_not_found_when_on_or_of_no_use(present: dict):
    assert find(measurement(**{"on_gpu": False, "roles": ROLES, **present})) is None


SCRIPT = """
import json, torch
OFF
model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), torch.nn.Linear(144, 2))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(20):
    model(torch.ones(2, 3, 8, 8)).sum().backward()
    optimizer.step()
print(json.dumps(torch.backends.mkldnn.enabled))
"""
OFF = SCRIPT.replace("OFF", "torch.backends.mkldnn.enabled = False")


def test_it_is_on_again(tmp_path: Path):
    assert run_with(OFF, [], tmp_path / "plain").printed is False
    done = run_with(OFF, ["onednn"], tmp_path / "changed")
    assert done.printed is True
    assert done.told == {"onednn": "applied: oneDNN is on"}


def test_where_it_is_on_it_says_so(tmp_path: Path):
    assert run_with(SCRIPT.replace("OFF", ""), ["onednn"], tmp_path).told == {"onednn": "oneDNN is not switched off"}


@pytest.mark.usefixtures("forked_scripts")
def test_a_measurement_sees_the_switch(tmp_path: Path):
    path = tmp_path / "train.py"
    path.write_text(OFF)
    settings = TrialSettings(steps=2, warmup_steps=2)
    trial = run_trial([sys.executable, str(path)], [], tmp_path / "trial", settings, lambda *_: None, lambda _: None)
    assert trial.measurement is not None, trial.message
    assert trial.measurement.origin.flags["onednn"] is False
