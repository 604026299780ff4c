"""Affinity: found when a launcher binds all ranks to the same few cores; applied, each rank gets a part of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from practices.changed import run_with
from practices.evidence import measurement, spread

from vivace.practices.affinity import find
from vivace.records.measurement import Rank


def job(*cores: str, threads: int = 4, **more):
    ranks = tuple(
        Rank(rank=i, host="here", device="cpu", cores=c, step_ms=spread(100), phases_ms={}) for i, c in enumerate(cores)
    )
    return measurement(on_gpu=False, structure={"threads": threads}, ranks=ranks, **more)


def test_found_when_all_ranks_are_bound_to_the_same_cores():
    found = find(job("0-1", "0-1"))
    assert found is not None
    assert found.exposed_ms == pytest.approx(90 * (1 - 2 / 8))
    assert found.why_not is not None


@pytest.mark.parametrize(
    "m",
    [
        job("0-3", "4-7"),
        job("0-7", "0-7"),  # not bound
        job("0-1", "0-1", threads=1),  # two cores are enough
        job("0-1"),
    ],
)
def test_not_found_when_each_has_enough(m):
    assert find(m) is None


SCRIPT = """
import json, os, torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(3):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
print(json.dumps([sorted(os.sched_getaffinity(0)), torch.get_num_threads()]))
"""


@pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity") or len(os.sched_getaffinity(0)) < 2, reason="needs two cores to share"
)
def test_ranks_share_the_cores_without_overlap(tmp_path: Path):
    printed = []
    for rank in ("0", "1"):
        done = run_with(SCRIPT, ["affinity"], tmp_path / rank, LOCAL_RANK=rank, LOCAL_WORLD_SIZE="2")
        assert done.told["affinity"].startswith(f"applied: rank {rank} of 2 on ")
        printed.append(done.printed)
    (first, first_threads), (second, second_threads) = printed
    assert set(first) | set(second) == os.sched_getaffinity(0)
    assert not set(first) & set(second)
    assert (first_threads, second_threads) == (len(first), len(second))


def test_one_process_keeps_all_its_cores(tmp_path: Path):
    done = run_with(SCRIPT, ["affinity"], tmp_path)
    assert done.told == {"affinity": "one process on this host: it may use all its cores already"}
    assert set(done.printed[0]) == os.sched_getaffinity(0)
