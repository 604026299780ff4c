"""Ranks that torchrun starts again meet each other, and not what ranks of the earlier start left in its store."""

from __future__ import annotations

import multiprocessing
import os
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from vivace import distributed

RANKS = 2


def _rank(rank: int, port: int, restart: int, late_s: float, answers: Any) -> None:
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS), LOCAL_WORLD_SIZE=str(RANKS),
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), TORCHELASTIC_RUN_ID="test", TORCHELASTIC_MAX_RESTARTS="1",
        TORCHELASTIC_USE_AGENT_STORE="True", TORCHELASTIC_RESTART_COUNT=str(restart),
    )  # fmt: skip
    time.sleep(late_s)
    distributed.init_process_group(timeout=timedelta(seconds=120))
    beside = dist.new_group(backend="gloo")
    total = torch.tensor(float(rank + 1))
    dist.all_reduce(total, group=beside)
    answers.put((rank, total.item(), distributed.this_start()))
    answers.close()
    answers.join_thread()
    os._exit(1)  # as one that was killed: nothing is taken back


def _start(port: int, restart: int, late_s: float) -> list[tuple[int, float, str]]:
    fork = multiprocessing.get_context("fork")
    answers: Any = fork.Queue()
    ranks = [fork.Process(target=_rank, args=(rank, port, restart, late_s * (rank == 0), answers)) for rank in range(2)]
    for each in ranks:
        each.start()
    found = sorted(answers.get(timeout=300) for _ in ranks)
    for each in ranks:
        each.join()
    return found


def test_a_rank_that_comes_before_rank_0_does_not_call_the_dead_one() -> None:
    store = dist.TCPStore("127.0.0.1", 0, RANKS, is_master=True, wait_for_workers=False)  # torchrun's, for all starts
    first = _start(store.port, 0, late_s=0.0)
    second = _start(store.port, 1, late_s=1.0)
    assert [total for _rank, total, _name in (*first, *second)] == [3.0] * 4
    names = [{name for _rank, _total, name in found} for found in (first, second)]
    assert all(len(each) == 1 for each in names)
    assert names[0] != names[1]


def test_where_nobody_restarts_torch_meets_as_ever() -> None:
    inside = {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_MAX_RESTARTS": "0"}
    assert not distributed._may_be_restarted(inside)
    assert not distributed._may_be_restarted({})
    assert distributed._may_be_restarted({**inside, "TORCHELASTIC_MAX_RESTARTS": "3"})
