"""Validation without gradients: found by the forwards in eval mode that keep a graph which no backward uses."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from practices.evidence import measurement

from vivace.practices.no_grad_validation import PRACTICE, find
from vivace.records.measurement import Validation
from vivace.records.structure import Spot

PLACE = Spot(file="train.py", line=44, code="loss = criterion(model(x), y)", forwards=12)


def test_found_and_priced_by_the_validation_that_keeps_a_graph():
    validation = Validation(total_ms=1000.0, batches=12, runs=1, with_grad_ms=600.0)
    found = find(measurement(structure={"eval_with_grad": (PLACE,)}, validation=validation))
    assert found is not None
    # At most half of 600 ms over 30 steps: 10 of the 133 ms that a step takes with its part of the validation.
    assert found.exposed_ms == pytest.approx(7.5)
    assert found.where == ("train.py", 44)
    assert found.evidence["forwards"] == 12


@pytest.mark.parametrize(
    ("places", "with_grad_ms"),
    [((), 0.0), ((PLACE,), 0.0), ((PLACE,), 20.0)],  # none; trained in eval mode; of no cost
)
def test_not_found_when_present_or_of_no_cost(places: tuple, with_grad_ms: float):
    validation = Validation(total_ms=1000.0, batches=12, runs=1, with_grad_ms=with_grad_ms)
    assert find(measurement(structure={"eval_with_grad": places}, validation=validation)) is None


SCRIPT = """
import contextlib, torch
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
rows = torch.ones(4, 8)
for step in range(200):
    TRAIN_MODE
    optimizer.zero_grad()
    model(rows).sum().backward()
    optimizer.step()
    if step % 3 == 2:
        VALIDATION
"""


@pytest.mark.parametrize(
    ("train_mode", "validation", "found_at"),
    [
        ("model.train()", "model.eval(); print(model(rows).sum().item())", 12),
        ("model.train()", "model.eval()\n        with torch.no_grad(): print(model(rows).sum().item())", None),
        ("model.eval()", "pass", None),  # fine-tuning with frozen statistics: a backward follows every forward
    ],
)
def test_measuring_tells_validation_with_a_graph_from_training_in_eval_mode(
    train_mode: str, validation: str, found_at: int | None, vivace_here: Callable, tmp_path: Path
):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT.replace("TRAIN_MODE", train_mode).replace("VALIDATION", validation))
    record = vivace_here("measure", "--json", "--steps", "9", "--", sys.executable, str(path)).record
    if found_at is None:
        assert record["validation"]["with_grad_ms"] == 0
        return
    assert record["validation"]["with_grad_ms"] > 0
    assert record["validation"]["runs"] == 3
    assert [spot["line"] for spot in record["structure"]["eval_with_grad"]] == [found_at]


def test_only_the_user_can_change_it():
    assert PRACTICE.change is None
    assert "torch.no_grad()" in PRACTICE.by_hand
