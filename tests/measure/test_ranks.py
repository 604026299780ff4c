"""Ranks that do not report, ranks that restart, and several runs in one folder: never taken for one whole run."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import SCRIPTS
from forked.process import PYTHON
from hypothesis import given
from hypothesis import strategies as st

from vivace.measure.ranks import missing_ranks, name_ranks, read_payloads
from vivace.protocol.payload import Payload, SeenProcess, Status

# Ranks that do not talk to each other: after a restart gloo cannot always connect again.
RESTARTS = """
import os
import torch

model = torch.nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(500):
    optimizer.zero_grad()
    model(torch.randn(16, 8)).square().mean().backward()
    optimizer.step()
    if step == 5 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        raise RuntimeError("lost a node")
"""


def test_one_rank_of_eight_is_not_the_whole_job(vivace: Callable):
    """As seen from one node of several without a shared folder."""
    command = [PYTHON, str(SCRIPTS / "plain.py")]
    done = vivace("measure", "--steps", "4", "--warmup", "2", "--no-profile", "--", *command, RANK="2", WORLD_SIZE="8")
    record = json.loads((done.folder / "measurement.json").read_text())
    assert (record["status"], record["reason"]) == ("partial", "ranks 0-1, 3-7 of 8 did not report")
    assert record["missing_ranks"] == [0, 1, 3, 4, 5, 6, 7]
    assert record["batch_size"] == 32
    assert (record["samples_per_s"], record["tokens_per_s"], record["global_batch_size"]) == (None, None, None)
    (rank,) = record["ranks"]
    assert rank["samples_per_s"] == pytest.approx(32 * 4 / sum(record["series_ms"]["step"]) * 1e3)
    assert any(f"rank 2 alone: {rank['samples_per_s']:,.1f} samples/s" in note for note in record["notes"])
    assert "PARTIAL: ranks 0-1, 3-7 of 8 did not report" in done.out
    assert "unknown: not every rank reported" in done.out


def test_a_trial_with_missing_ranks_is_refused_with_that_reason(vivace: Callable):
    command = [PYTHON, str(SCRIPTS / "plain.py")]
    done = vivace("tune", "--steps", "4", "--", *command, RANK="0", WORLD_SIZE="2")
    assert done.code != 0
    assert "rank 1 of 2 did not report" in done.err + done.out


def test_ranks_that_torchrun_restarted_are_those_of_one_start(vivace: Callable, tmp_path: Path):
    (tmp_path / "restarts.py").write_text(RESTARTS)
    torchrun = [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*torchrun, "--max-restarts", "1", "restarts.py"]
    record = vivace("measure", "--json", "--steps", "6", "--warmup", "2", "--no-profile", "--", *command).record
    assert (record["status"], record["steps"], record["missing_ranks"]) == ("complete", 6, [])
    assert [rank["rank"] for rank in record["ranks"]] == [0, 1]
    assert record["global_batch_size"] == 32
    assert "the ranks started 2 times; shown: start 2" in record["notes"]


def payload(rank: int, world: int, steps: int, restart: int = 0, status: Status = Status.COMPLETE) -> Payload:
    process = SeenProcess(script="train.py")
    return Payload(rank=rank, world=world, restart=restart, total_steps=steps, status=status, process=process)


def written(folder: Path, *payloads: Payload) -> list[Payload]:
    for number, one in enumerate(payloads):
        (folder / f"rank-{one.rank}-host-{number}.json").write_text(one.to_text())
    return read_payloads(folder)


def test_a_script_that_trains_before_the_ranks_start_does_not_stand_for_rank_0(tmp_path: Path):
    found = written(tmp_path, payload(0, 1, 90), payload(0, 2, 100), payload(1, 2, 100))
    assert [(p.rank, p.world) for p in found] == [(0, 2), (1, 2)]
    assert found[0].notes == ["not shown: train.py (90 steps) on 1 rank, which trained less"]
    assert missing_ranks(found) == ()


def test_two_starts_are_not_mixed(tmp_path: Path):
    """Rank 0 trained longer in the first start, which rank 1 did not survive."""
    found = written(tmp_path, payload(0, 2, 80, 0, Status.PARTIAL), payload(0, 2, 60, 1), payload(1, 2, 60, 1))
    assert [(p.rank, p.restart) for p in found] == [(0, 1), (1, 1)]


def test_a_start_that_lacks_ranks_is_still_told_to_lack_them(tmp_path: Path):
    found = written(tmp_path, payload(0, 4, 60), payload(3, 4, 60), payload(0, 1, 5))
    assert missing_ranks(found) == (1, 2)


def test_of_processes_with_the_same_rank_the_longest_is_shown(tmp_path: Path):
    found = written(tmp_path, payload(0, 1, 5), payload(0, 1, 50))
    assert [p.total_steps for p in found] == [50]
    note = "2 processes trained as rank 0: train.py (5 steps), train.py (50 steps); shown: the longest"
    assert found[0].notes == [note]


@given(st.sets(st.integers(0, 60), min_size=1))
def test_named_ranks_are_those_given(ranks: set[int]):
    words = name_ranks(sorted(ranks)).split(" ", 1)[1]
    spans = [[int(end) for end in span.split("-")] for span in words.split(", ")]
    assert {rank for span in spans for rank in range(span[0], span[-1] + 1)} == ranks
    assert all(later[0] > earlier[-1] + 1 for earlier, later in itertools.pairwise(spans))


LATE = """
import os, time, torch, torch.distributed as dist
rank = int(os.environ["RANK"])
dist.init_process_group("gloo", os.environ["MEETING"], rank=rank, world_size=2)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(1000):
    if rank == LATE:
        time.sleep(0.2)
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_the_wait_for_a_late_rank_is_told_whichever_rank_it_is(vivace: Callable, tmp_path: Path):
    """Rank 0 alone would say that nearly nothing is communication in one run, and nearly all of it in the other."""
    for late in (0, 1):
        script = tmp_path / f"late{late}.py"
        script.write_text(LATE.replace("LATE", str(late)))
        options = ("--json", "--steps", "6", "--no-profile", "--no-flops")
        command = [PYTHON, str(SCRIPTS / "two_ranks.py"), str(script)]
        record = vivace("measure", *options, "--", *command, PYTHON_EXEC=PYTHON).record
        spent = [rank["phases_ms"]["communication"]["median"] for rank in record["ranks"]]
        assert spent[1 - late] > spent[late]
        of_ranks = [rank["phases_ms"]["communication"]["mean"] for rank in record["ranks"]]
        assert record["phases_ms"]["communication"]["mean"] == pytest.approx(sum(of_ranks) / 2, rel=1e-3)
        assert 0 < record["waiting_for_ranks_ms"] < record["phases_ms"]["communication"]["mean"]
