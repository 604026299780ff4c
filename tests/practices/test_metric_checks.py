"""torchmetrics without its checks."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from practices.changed import run_with
from practices.evidence import measurement

from vivace.practices.metric_checks import find
from vivace.practices.no_syncs import find as find_syncs
from vivace.records.measurement import Sync

METRIC = Sync(
    file="/home/a/train.py", line=9, code="metric.update(loss)", via="torchmetrics/aggregation.py:93", per_step=2.0
)
IDLE = {"roles": {"matmul": 80.0}}

SCRIPT = """
import json, torch, weakref
held = [weakref.proxy(set())]  # dead at once, as torch.compile leaves them
from torchmetrics.aggregation import MeanMetric, SumMetric
from torchmetrics.classification import MulticlassAccuracy
mean, total, accuracy = MeanMetric(), SumMetric(), MulticlassAccuracy(num_classes=3, average="micro")
model = torch.nn.Linear(2, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    optimizer.zero_grad()
    model(torch.ones(4, 2)).sum().backward()
    optimizer.step()
for value in (1.0, float("nan"), 4.0):
    mean.update(torch.tensor(value)); total.update(torch.tensor([value, 1.0]))
mean.update(torch.tensor([2.0, 8.0]), torch.tensor([3.0, 1.0]))
accuracy.update(torch.tensor([0, 1, 2, 2]), torch.tensor([0, 1, 2, 1]))
print(json.dumps([mean.compute().item(), total.compute().item(), accuracy.compute().item(), accuracy.validate_args]))
"""


def test_found_where_torchmetrics_makes_the_host_wait():
    found = find(measurement(syncs=(METRIC,), **IDLE))
    assert found is not None
    assert found.exposed_ms == pytest.approx(20.0)
    assert found.where == ("/home/a/train.py", 9)


def test_it_is_not_told_twice():
    assert find_syncs(measurement(syncs=(METRIC,), **IDLE)) is None


def test_not_found_without_torchmetrics_or_without_idle_time():
    item = METRIC.model_copy(update={"via": None})
    assert find(measurement(syncs=(item,), **IDLE)) is None
    assert find(measurement(syncs=(METRIC,), roles={"matmul": 100.0})) is None


@pytest.mark.filterwarnings("ignore")
def test_the_results_stay_the_same_and_the_checks_are_gone(tmp_path: Path):
    plain = run_with(SCRIPT, (), tmp_path / "plain").printed
    changed = run_with(SCRIPT, ("metric_checks",), tmp_path / "changed")
    assert changed.printed[:3] == plain[:3]
    assert not math.isnan(changed.printed[0])
    assert (plain[3], changed.printed[3]) == (True, False)
    assert changed.told["metric_checks"].startswith("applied: 3 metrics")


def test_a_script_without_torchmetrics_says_so(tmp_path: Path):
    script = "import json, torch\nm = torch.nn.Linear(1, 1); o = torch.optim.SGD(m.parameters(), lr=0.1)\n"
    script += "for _ in range(4):\n    m(torch.ones(1, 1)).sum().backward(); o.step()\nprint(json.dumps(1))\n"
    told = run_with(script, ("metric_checks",), tmp_path).told
    assert told["metric_checks"] == "the script does not use torchmetrics"
