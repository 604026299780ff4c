"""``find lr`` on unedited scripts: the rates reach the optimizer, and the suggestions are rates that were tried."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Done
from hypothesis import given
from hypothesis import strategies as st

from vivace.errors import ExitCode
from vivace.protocol.rates import RateEnd, RateTest, SeenRates
from vivace.tune.finders.rate_curve import smoothed, suggest

Vivace = Callable[..., Done]

# A bowl with curvature 4: plain gradient descent is stable below a rate of 2 / 4.
BOWL = """
import torch
curvature = torch.tensor([4.0, 1.0, 0.25])
w = torch.nn.Parameter(torch.ones(3))
optimizer = torch.optim.SGD([w], lr=0.1)
schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
def loss_of(w):
    return 0.5 * (curvature * w * w).sum()
for step in range({steps}):
    {step}
    schedule.step()
open("saved.pt", "w").write("weights")
"""
PLAIN = "optimizer.zero_grad(); loss_of(w).backward(); optimizer.step()"
STEPS = {
    "plain": PLAIN,
    "accumulation": "optimizer.zero_grad(); [(loss_of(w) / 2).backward() for _ in range(2)]; optimizer.step()",
    "closure": "optimizer.step(lambda: (optimizer.zero_grad(), loss_of(w), loss_of(w).backward())[1])",
    "scaler": (
        "scaler = torch.amp.GradScaler('cpu', init_scale=8.0); optimizer.zero_grad(); "
        "scaler.scale(loss_of(w)).backward(); scaler.step(optimizer); scaler.update()"
    ),
}


def find(vivace: Vivace, folder: Path, code: str, *options: str) -> Done:
    (folder / "train.py").write_text(code)
    return vivace("find", "lr", "--json", *options, "--", sys.executable, "train.py")


@pytest.mark.parametrize("style", STEPS)
def test_the_stability_limit_of_a_bowl(tmp_path: Path, vivace_here: Vivace, style: str):
    code = BOWL.format(steps=1000, step=STEPS[style])
    record = find(vivace_here, tmp_path, code, "--from", "1e-4", "--steps", "100").record
    tried = [one["rate"] for one in record["tried"]]
    # By hand: gradient descent with these rates, whatever the script's schedule does.
    w, losses = [1.0, 1.0, 1.0], []
    for rate in tried:
        w = [x * (1 - rate * h) for x, h in zip(w, (4.0, 1.0, 0.25), strict=True)]
        losses.append(0.5 * sum(h * x * x for x, h in zip(w, (4.0, 1.0, 0.25), strict=True)))
    share = 0.5 if style == "accumulation" else 1.0  # each backward sees half of it
    assert [one["loss"] for one in record["tried"]] == pytest.approx([share * loss for loss in losses], rel=1e-3)
    assert record["first_loss"] == pytest.approx(share * 2.625)
    assert record["diverges"] > 0.5
    assert record["suggested"] < 0.5
    assert {record["steepest"], record["tenth_of_best"], record["diverges"], record["suggested"]} <= {*tried}
    assert 10 * record["tenth_of_best"] < 1.5 * 0.5
    assert record["own_rates"] == [0.1]
    assert record["complete"]
    assert not (tmp_path / "saved.pt").exists()  # it ended before


def test_groups_keep_their_ratios_also_with_a_rate_that_is_a_tensor(tmp_path: Path, vivace_here: Vivace):
    code = (
        "import torch\na, b = (torch.nn.Parameter(torch.ones(1)) for _ in range(2))\n"
        "optimizer = torch.optim.SGD([{'params': [a]}, {'params': [b], 'lr': torch.tensor(0.01)}], lr=0.1)\n"
        "log = open('log.txt', 'w')\nfor step in range(100):\n    optimizer.zero_grad()\n"
        "    (a * a + b * b).sum().backward()\n    optimizer.step()\n"
        "    print(*(float(g['lr']) for g in optimizer.param_groups), file=log, flush=True)\n"
    )
    record = find(vivace_here, tmp_path, code, "--steps", "20", "--to", "1e-2").record
    rates = [tuple(map(float, line.split())) for line in (tmp_path / "log.txt").read_text().splitlines()]
    assert [first for first, _ in rates][:20] == pytest.approx([RateTest(1e-7, 1e-2, 20).rate(n) for n in range(20)])
    assert [second / first for first, second in rates] == pytest.approx([0.1] * len(rates))
    assert record["own_rates"] == pytest.approx([0.1, 0.01])
    assert any("log.txt" in note for note in record["notes"])  # the script wrote it, and it is told


def test_a_script_that_ends_first_says_so(tmp_path: Path, vivace_here: Vivace):
    done = find(vivace_here, tmp_path, BOWL.format(steps=30, step=PLAIN), "--steps", "100", "--to", "1e-3")
    assert done.code == ExitCode.NOT_ENOUGH
    assert len(done.record["tried"]) == 29  # the loss after the last step was never computed
    assert "after 29 of 100 rates" in done.record["ended"]


TWO = """
import torch
nets = [torch.nn.Linear(2, 1) for _ in range(2)]
optimizers = [torch.optim.SGD(net.parameters(), 0.1) for net in nets]
for step in range(50):
    for net, optimizer in zip(nets, optimizers):
        net(torch.ones(1, 2)).sum().backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("code", "says"),
    [(TWO, "two optimizers"), ("import torch", "no step of a torch optimizer"), ("raise ValueError('bad')", "bad")],
)
def test_what_cannot_be_tested_is_told(tmp_path: Path, vivace_here: Vivace, code: str, says: str):
    done = find(vivace_here, tmp_path, code)
    assert done.code == ExitCode.NOTHING
    assert says in done.err


def test_the_page_and_the_sketch(tmp_path: Path, vivace_here: Vivace):
    (tmp_path / "train.py").write_text(BOWL.format(steps=1000, step=PLAIN))
    done = vivace_here("find", "lr", "--", sys.executable, "train.py")
    assert "begin with this one" in done.out
    assert done.out.count("•") > 30
    assert vivace_here("report", str(done.folder)).code == 0
    page = (done.folder / "report.html").read_text()
    assert "Loss over the learning rate" in page
    assert page.count("<polyline") == 2


def test_a_noisy_valley_is_found():
    """A made curve over 8 decades: flat to 1e-4, falling to its lowest at 1e-1, rising beyond 1."""
    test = RateTest(1e-7, 10.0, 200)
    rates = [test.rate(n) for n in range(200)]

    def loss(n: int) -> float:
        decade = math.log10(rates[n])
        noise = 0.05 * math.sin(37.0 * n)
        return 2.3 - 1.0 / (1 + math.exp(-3 * (decade + 2.5))) + (10 ** max(0.0, decade) - 1) * 3 + noise

    found = suggest(rates, [loss(n) for n in range(200)], 2.3)
    assert found.steepest is not None
    assert found.tenth_of_best is not None
    assert found.diverges is not None
    assert -3.2 < math.log10(found.steepest) < -1.8  # the middle of the slope is 10**-2.5
    assert -2.5 < math.log10(found.tenth_of_best) < -0.8
    assert found.diverges > 1


@given(
    st.lists(st.floats(-1e3, 1e3) | st.just(math.nan) | st.just(math.inf), min_size=3, max_size=60), st.floats(-10, 10)
)
def test_suggestions_are_rates_that_were_tried(losses: list[float], first: float):
    test = RateTest(1e-5, 1.0, len(losses))
    rates = [test.rate(n) for n in range(len(losses))]
    found = suggest(rates, losses, first)
    assert {found.steepest, found.tenth_of_best, found.diverges, found.suggested} <= {*rates, None}
    assert all(map(math.isfinite, smoothed(losses, first)))


def test_what_the_process_says_is_read_back():
    seen = SeenRates(RateEnd.DIVERGED, (0.1, 1.0), (2.0, math.inf), 3.0, (0.1,), "SGD", 1)
    assert SeenRates.from_text(seen.to_text()) == seen
    with pytest.raises(ValueError, match="not a range test"):
        SeenRates.from_text('{"rates": []}')
