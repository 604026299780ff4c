"""accumulation: advice for a full card, never where there is room; from outside, the same training in less memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from practices.changed import run_here, run_with
from practices.evidence import measurement

from vivace.practices import accumulation

FULL = {"allocated_peak_gib": 130.0, "reserved_peak_gib": 138.0}


def test_accumulation_is_advised_when_memory_is_the_limit():
    found = accumulation.find(measurement(memory=FULL, batch_size=64))
    assert found is not None
    assert "two passes of 32 samples" in found.says
    assert found.exposed_ms == 0  # it makes room, not speed


@pytest.mark.parametrize(
    "present",
    [
        {},
        {"memory": FULL, "micro_batches": 4.0},  # it accumulates already
        {"memory": FULL, "batch_size": 1},
        {"on_gpu": False},
    ],
)
def test_accumulation_is_not_advised_otherwise(present: dict):
    assert accumulation.find(measurement(**present)) is None


def test_the_lines_for_accumulation_give_the_gradient_of_the_whole_batch():
    torch.manual_seed(0)
    model, whole = torch.nn.Linear(4, 2), torch.randn(8, 4)
    model(whole).square().mean().backward()
    expected = model.weight.grad.clone()
    model.zero_grad()
    for half in whole.split(4):
        (model(half).square().mean() / 2).backward()
    torch.testing.assert_close(model.weight.grad, expected)


SCRIPT = """
import json, torch
torch.manual_seed(0)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last, self.sizes = torch.nn.Linear(6, 8), torch.nn.Linear(8, 3), []
        EXTRA
    def forward(self, x, scale=1.0):
        self.sizes.append(len(x))
        hidden = torch.relu(self.first(x) * scale)
        MIDDLE
        return RESULT
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
losses, data = [], torch.randn(40, 6)
for step in range(5):
    x, y = data[step * 8:step * 8 + 7 + (step > 0)], torch.arange(8)[:7 + (step > 0)] % 3
    output = model(x, scale=torch.tensor(2.0))
    loss = LOSS
    loss.backward()
    optimizer.step(); optimizer.zero_grad(); scheduler.step()
    losses.append(loss.item())
model.eval()
with torch.no_grad():
    validated = model(data)
print(json.dumps({"losses": losses, "sizes": model.sizes, "rates": scheduler.get_last_lr(),
                  "saved": {k: v.double().sum().item() for k, v in model.state_dict().items()}}))
"""


def script(extra: str = "pass", middle: str = "pass", result: str = "self.last(hidden)", loss: str = "") -> str:
    loss = loss or "torch.nn.functional.cross_entropy(output, y)"
    return SCRIPT.replace("EXTRA", extra).replace("MIDDLE", middle).replace("RESULT", result).replace("LOSS", loss)


@pytest.mark.parametrize(
    ("result", "loss"),
    [
        ("self.last(hidden)", "torch.nn.functional.cross_entropy(output, y)"),
        ("{'a': (self.last(hidden), hidden)}", "output['a'][0].square().mean() + output['a'][1].mean()"),
    ],
)  # fmt: skip
def test_in_pieces_the_training_is_that_of_the_whole_batch(tmp_path: Path, result: str, loss: str):
    text = script(result=result, loss=loss)
    whole: dict[str, Any] = run_here(text)
    changed = run_with(text, ["accumulation=3"], tmp_path)
    assert changed.told["accumulation=3"] == "applied: Net in 3 passes; each is computed again for its gradient"
    assert changed.printed["losses"] == pytest.approx(whole["losses"], rel=1e-6)
    assert changed.printed["saved"] == pytest.approx(whole["saved"], rel=1e-5)
    assert changed.printed["rates"] == whole["rates"]  # the schedule counts the same steps
    assert max(changed.printed["sizes"][:-1]) <= 3  # never the whole batch of 8
    assert changed.printed["sizes"][-1] == 40  # validation is left alone


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (script("self.norm = torch.nn.BatchNorm1d(8)", "hidden = self.norm(hidden)"), "batch norm would see"),
        (script(middle="hidden = hidden - hidden.mean(0)"), "depends on the others of its batch"),
        (script(result="self.last(hidden).square().mean()", loss="output"), "something for the whole batch"),
    ],
)  # fmt: skip
def test_what_cannot_be_split_runs_whole_and_says_why(tmp_path: Path, text: str, reason: str):
    whole = run_here(text)
    changed = run_with(text, ["accumulation"], tmp_path)
    assert reason in changed.told["accumulation"]
    assert changed.printed["losses"] == pytest.approx(whole["losses"], rel=1e-5)


def test_a_number_of_passes_is_two_or_more():
    for wrong in ("1", "0", "many"):
        with pytest.raises(ValueError, match="2 or more"):
            accumulation.InPieces(wrong)
