"""Syncs in the loop: found with the lines that wait, priced by the time the GPU is idle; by hand only."""

from __future__ import annotations

import pytest
from practices.evidence import measurement

from vivace.practices.no_syncs import PRACTICE, find
from vivace.records.measurement import Sync

ITEM = Sync(file="/home/a/train.py", line=42, code="print(loss.item())", per_step=1.0)
RARE = Sync(file="/home/a/train.py", line=50, code="log(loss.item())", per_step=0.1)
LOOKS_FOR_NAN = Sync(file="/home/a/train.py", line=41, code="loss.backward()", per_step=300.0)
IDLE = {"roles": {"matmul": 60.0}, "phases": {"loader": 15.0}}  # 100 ms: 60 busy, 15 for the loader, 25 for the host


def test_found_with_the_line_and_the_idle_time():
    found = find(measurement(syncs=(RARE, ITEM), **IDLE))
    assert found is not None
    assert found.exposed_ms == pytest.approx(25.0)
    assert found.where == ("/home/a/train.py", 42)
    assert "train.py:42 `print(loss.item())`" in str(found.evidence["lines"])
    assert found.evidence["syncs_per_step"] == 1.0


@pytest.mark.parametrize(
    "present",
    [
        {"syncs": (), **IDLE},
        {"syncs": (RARE,), **IDLE},  # every tenth step
        {"syncs": (ITEM,), "roles": {"matmul": 99.5}},  # the GPU is busy all the time: the sync costs nothing
        {"syncs": (ITEM,), "on_gpu": False},
        {"syncs": (LOOKS_FOR_NAN,), "structure": {"debugging": ("anomaly detection",)}, **IDLE},  # see debug_off
    ],
)
def test_not_found_when_there_is_none_or_it_costs_nothing(present: dict):
    assert find(measurement(**present)) is None


def test_only_the_user_can_change_it():
    assert PRACTICE.change is None
    assert ".item()" in PRACTICE.by_hand
