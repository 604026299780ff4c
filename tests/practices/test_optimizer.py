"""Another optimizer from outside is the one that the script would have made by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from practices.changed import run_here, run_with

from vivace.errors import UserError
from vivace.practices.engine.registry import parse_words

SCRIPT = """
import json, torch
from vivace.methods.optim import Lamb, Lars, Lion, Muon, Shampoo
torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Embedding(7, 6), torch.nn.Linear(6, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 8), torch.nn.Linear(8, 3)
)
hidden = [p for p in model[1:].parameters() if p.dim() > 1]
others = [p for p in model.parameters() if not any(p is h for h in hidden)]
groups = [{"params": hidden, "weight_decay": 0.1, "name": "hidden"}, {"params": others, "lr": RATE / 2}]
optimizer = MAKE
SETUP
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
for step in range(5):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(torch.arange(7)), torch.arange(7) % 3).backward()
    optimizer.step()
    schedule.step()
    if step == 2:
        optimizer.load_state_dict(optimizer.state_dict())
print(json.dumps({
    "class": type(optimizer).__name__, "lr": [g["lr"] for g in optimizer.param_groups],
    "name": optimizer.param_groups[0]["name"],
    "weights": [getattr(p.double(), size)().item() for p in model.parameters() for size in ("sum", "norm")],
}))
"""


def script(make: str, rate: float, setup: str = "") -> str:
    return SCRIPT.replace("MAKE", make).replace("RATE", str(rate)).replace("SETUP", setup)


@pytest.mark.parametrize(
    ("word", "scripts_own", "rate", "by_hand", "setup"),
    [
        ("optimizer=lamb:0.02", "torch.optim.AdamW(groups, lr=0.01)", 0.01,
         "Lamb(groups, lr=0.02, eps=1e-8, weight_decay=0.01)", ""),
        ("optimizer=larc:0.3", "torch.optim.SGD(groups, lr=0.1)", 0.1, "Lars(groups, 0.3, 0.9, clip=True)", ""),
        ("optimizer=sgd:0.3", "torch.optim.Adam(groups, lr=0.1)", 0.1, "torch.optim.SGD(groups, 0.3, 0.9)", ""),
        ("optimizer=nadamw", "torch.optim.AdamW(groups, lr=0.01)", 0.01,
         "torch.optim.NAdam(groups, lr=0.01, weight_decay=0.01, decoupled_weight_decay=True)", ""),
        ("optimizer=muon", "torch.optim.AdamW(groups, lr=0.01, betas=(0.9, 0.95))", 0.01,
         "Muon(groups, lr=0.01, weight_decay=0.01)", "optimizer.leave_to_adamw([model[0].weight, model[4].weight])"),
        ("optimizer=shampoo", "torch.optim.Adam(groups, lr=0.01)", 0.01, "Shampoo(groups, lr=0.01)", ""),
    ],
)  # fmt: skip
def test_it_trains_as_written_by_hand(
    tmp_path: Path, word: str, scripts_own: str, rate: float, by_hand: str, setup: str
) -> None:
    changed = run_with(script(scripts_own, rate), [word], tmp_path / "changed")
    asked = float(word.partition(":")[2] or rate)
    reference = run_here(script(by_hand, asked, setup))
    assert changed.printed["class"] == reference["class"]
    assert changed.printed["weights"] == pytest.approx(reference["weights"], rel=1e-5, abs=1e-6)
    assert changed.printed["name"] == "hidden"
    assert changed.printed["lr"] == pytest.approx([rate / 4, rate / 8])  # what the script sees is its own


def test_lion_takes_a_fifth_of_adam_s_rate_and_five_times_its_decay(tmp_path: Path) -> None:
    changed = run_with(script("torch.optim.AdamW(groups, lr=0.05)", 0.05), ["optimizer=lion"], tmp_path / "changed")
    decays = "[g.__setitem__('weight_decay', 5 * g.get('weight_decay', 0.01)) for g in groups] and "
    by_hand = script(decays + "Lion(groups, lr=0.01, betas=(0.9, 0.999))", 0.01)
    assert changed.printed["weights"] == pytest.approx(run_here(by_hand)["weights"], rel=1e-5, abs=1e-6)
    assert "times 0.2" in changed.told["optimizer=lion"]


def test_a_rate_without_a_rule_and_an_optimizer_of_the_script_are_refused(tmp_path: Path) -> None:
    plain = script("torch.optim.SGD(groups, lr=0.1)", 0.1)
    refused = run_with(plain, ["optimizer=lamb"], tmp_path / "refused")
    assert "give one, optimizer=lamb:RATE" in refused.told["optimizer=lamb"]
    assert refused.printed["class"] == "SGD"
    assert refused.printed["weights"] == pytest.approx(run_here(plain)["weights"], rel=1e-5, abs=1e-6)
    own = script("type('Mine', (torch.optim.SGD,), {})(groups, lr=0.1)", 0.1)
    assert "of the script's own" in run_with(own, ["optimizer=muon"], tmp_path / "own").told["optimizer=muon"]


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("optimizer=adam2", "there are adamw, lamb"),
        ("optimizer=lamb:fast", "no learning rate"),
        ("optimizer=schedulefree", "optimizer.train()"),
        ("optimizer=muon,fused_optimizer", "exclude each other"),
    ],
)
def test_what_cannot_be_meant_is_said_before_the_start(word: str, says: str) -> None:
    with pytest.raises(UserError, match=says.replace("(", r"\(").replace(")", r"\)")):
        parse_words(word)
