"""Practices sorted out in one process, before the first trial: what ends it is left to a trial of its own."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from practices.evidence import measurement

from vivace.protocol.switchback import ArmSeen, ArmState, SeenSwitchback
from vivace.tune import switchback
from vivace.tune.bench import Bench
from vivace.tune.switchback import Sorted, sort_out
from vivace.tune.trials import TrialSettings

SCRIPT = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 64)
    def forward(self, x):
        if torch.is_autocast_enabled("cpu"):
            raise RuntimeError("no autocast here")
        return self.layer(x)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for step in range(100_000):
    loss = model(torch.randn(8, 64)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def bench(folder: Path, said: list[str], command: tuple[str, ...] = ("true",), prefix: tuple[str, ...] = ()) -> Bench:
    return Bench(command, folder, 600.0, TrialSettings(), lambda *_: None, lambda _: None, said.append, prefix)


def trial(**fields: Any) -> Any:
    return SimpleNamespace(measurement=measurement(on_gpu=False, **fields), seconds=30.0, name="again")


def test_what_ends_the_process_is_left_out_and_the_rest_goes_on(tmp_path: Path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    here = bench(tmp_path, [], (sys.executable, str(script)))
    seen = switchback._run(here, trial(), ("bf16", "fused_optimizer"), seconds=1.0)
    assert [arm.word for arm in seen.arms] == ["fused_optimizer"]
    assert seen.complete
    assert "no autocast here" in (tmp_path / "switchback" / "1" / "stderr.log").read_text()
    assert here.used_s > 0
    assert switchback._known(tmp_path) == seen  # --resume


def test_what_pays_is_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    arms = (
        ArmSeen("bf16", ArmState.PAYS, 1.3, 1.2, 1.4, 10),
        ArmSeen("channels_last", ArmState.NO_GAIN, 0.99, 0.98, 1.0, 10),
        ArmSeen("fused_optimizer", ArmState.UNDECIDED, 1.01, 0.9, 1.1, 68),
    )
    monkeypatch.setattr(switchback, "_run", lambda *_: SeenSwitchback(arms, ("bf16",), None, True))
    said: list[str] = []
    found = sort_out(bench(tmp_path, said), trial(), trial(), [arm.word for arm in arms])
    assert found == Sorted(("bf16",), (arms[1],))
    assert "bf16 1.30×, channels_last 0.99×, fused_optimizer 1.01×" in said[0]
    on_gpu = SimpleNamespace(measurement=measurement(on_gpu=True), seconds=30.0, name="again")
    found = sort_out(bench(tmp_path, said), on_gpu, on_gpu, [arm.word for arm in arms])
    assert found == Sorted(("bf16",), try_last=("channels_last",))  # never left out on its word alone


@pytest.mark.parametrize(
    ("words", "fields", "prefix"),
    [
        (["bf16"], {}, ()),  # a trial is as good
        (["workers=2", "bf16"], {}, ()),
        (["bf16", "channels_last"], {}, ("srun",)),
        (["bf16", "channels_last"], {"step_ms": 5000.0}, ()),  # takes longer than trials
    ],
)
def test_where_it_saves_nothing_it_is_not_done(words, fields, prefix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(switchback, "_run", lambda *_: pytest.fail("a process was started"))
    again = trial(**fields)
    assert sort_out(bench(tmp_path, [], prefix=prefix), again, again, words) == Sorted()
