"""Each practice that can be switched: on and off between steps, a training stays what it is."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from vivace.measure.command import run_command
from vivace.practices.engine.entry import change_of
from vivace.practices.switching.arms import Arms
from vivace.practices.switching.live import Flags, Live
from vivace.protocol.request import Entry, ProcessRequest
from vivace.protocol.switchback import SEEN, ArmState, SeenSwitchback, SwitchbackTest


class Training:
    """A small network with batch norm; ``kind`` of optimizer."""

    def __init__(self, kind: Any, **options: Any) -> None:
        torch.manual_seed(0)
        convolution = nn.Conv2d(3, 8, 3, bias=False)  # batch norm takes a bias away: its gradient is rounding
        self.model = nn.Sequential(convolution, nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 4))
        self.optimizer = kind(self.model.parameters(), lr=0.05, **options)

    def step(self, number: int) -> float:
        torch.manual_seed(number)
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(torch.randn(6, 3, 8, 8)), torch.arange(6) % 4)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    @property
    def live(self) -> Live:
        return Live([self.model], [self.optimizer])


SGD = (torch.optim.SGD, {"momentum": 0.9})
ADAM = (torch.optim.AdamW, {})


@pytest.mark.parametrize(
    ("word", "kind"),
    [("channels_last", SGD), ("channels_last", ADAM), ("fused_optimizer", SGD), ("fused_optimizer", ADAM),
     ("foreach_optimizer", SGD), ("foreach_optimizer", ADAM), ("threads=1", SGD)],
)  # fmt: skip
def test_on_and_off_while_it_trains(word: str, kind: Any):
    plain, switched = (Training(kind[0], **kind[1]) for _ in range(2))
    arms, before = Arms({word: change_of(word)}), Flags()
    losses = []
    for number in range(12):
        arms.switch_to((word,) if number % 4 in (1, 2) else (), switched.live)
        losses.append(switched.step(number))
    arms.switch_to((), switched.live)
    assert losses == pytest.approx([plain.step(number) for number in range(12)], rel=1e-4)
    for mine, theirs in zip(switched.model.parameters(), plain.model.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-5)
        assert mine.stride() == theirs.stride()
    assert vars(Flags()) == vars(before)
    groups = [training.optimizer.param_groups[0] for training in (switched, plain)]
    assert [(group["fused"], group["foreach"]) for group in groups[:1]] == [(groups[1]["fused"], groups[1]["foreach"])]


def test_what_cannot_be_switched_says_so():
    assert not change_of("workers=2").switchable
    assert not change_of("compile=reduce-overhead").switchable
    assert change_of("compile").switchable


SCRIPT = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 4))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for step in range(100_000):
    loss = model(torch.randn(8, 3, 8, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_script_that_nobody_edited(tmp_path: Path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    test = SwitchbackTest(("bf16", "channels_last", "fused_optimizer", "workers=2"), seconds=2.0)
    asked = ProcessRequest(str(tmp_path), entry=Entry.SWITCHBACK, measure=False, seed_offset=0, switchback=test)
    outcome = run_command([sys.executable, str(script)], asked, lambda *_: None, lambda _: None, timeout_s=300)
    assert outcome.exit_code == 0, (tmp_path / "stderr.log").read_text()
    (path,) = tmp_path.glob(SEEN)
    told = SeenSwitchback.from_text(path.read_text())
    assert told.complete
    assert [arm.word for arm in told.arms] == list(test.words)
    assert told.arms[0].state in (ArmState.PAYS, ArmState.NO_GAIN, ArmState.UNDECIDED)
    assert told.arms[0].pairs >= 10
    assert ArmState.REFUSED not in {arm.state for arm in told.arms}
