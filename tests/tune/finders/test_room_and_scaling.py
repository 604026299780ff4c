"""The memory that is left, and what another batch changes for the training."""

from __future__ import annotations

import pytest
from report.made import made_measurement, spread

from vivace.errors import UserError
from vivace.records.measurement import DeviceMemory, HostMemory, Memory, Rank
from vivace.records.search import BatchTried
from vivace.records.structure import Optimizer, Structure
from vivace.tune.finders.room import parse_gib, room_of
from vivace.tune.finders.scaling import advice_for


def device(reserved_gib: float, total_gib: float = 80.0) -> DeviceMemory:
    return DeviceMemory(
        allocated_peak_gib=reserved_gib - 1, reserved_peak_gib=reserved_gib, total_gib=total_gib, alloc_retries=0
    )


def rank(number: int, memory: DeviceMemory | None, host: str = "a") -> Rank:
    return Rank(rank=number, host=host, device="cuda", step_ms=spread(1.0), phases_ms={}, memory=memory)


def test_the_rank_with_the_least_room_counts():
    record = made_measurement(
        memory=Memory(device=device(30.0)), ranks=(rank(0, device(30.0)), rank(1, device(20.0, total_gib=24.0)))
    )
    room = room_of(record)
    assert room is not None
    assert (room.memory, room.left_gib) == ("GPU", 4.0)


def test_on_a_cpu_the_hosts_limit_counts_with_the_workers():
    host = HostMemory(rss_gib=1.0, rss_peak_gib=3.0, children_rss_gib=2.0, children=2)
    record = made_measurement(memory=Memory(host=host))
    limited = record.model_copy(update={"machine": record.machine.model_copy(update={"memory_limit_gib": 8.0})})
    assert [room_of(one).left_gib for one in (record, limited)] == [11.0, 3.0]  # type: ignore[union-attr]


def test_ranks_on_several_hosts_tell_no_room():
    host = HostMemory(rss_gib=1.0, rss_peak_gib=3.0, children_rss_gib=2.0, children=2)
    record = made_measurement(memory=Memory(host=host), ranks=(rank(0, None, "a"), rank(1, None, "b")))
    assert room_of(record) is None


def test_amounts_of_memory():
    assert [parse_gib(text) for text in ("2GiB", "512 MiB", "1.5g")] == [2.0, 0.5, 1.5]
    assert parse_gib("1GB") == pytest.approx(0.9313, rel=1e-3)
    for wrong in ("2", "-1GiB", "much", "2 hours"):
        with pytest.raises(UserError):
            parse_gib(wrong)


def tried(size: int, ranks: int = 1) -> BatchTried:
    return BatchTried(size=size, outcome="ok", batch_size=size, global_batch_size=size * ranks, ranks=ranks)


def record_with(optimizer: str):
    return made_measurement(structure=Structure(optimizers=(Optimizer(name=optimizer),)))


def test_sgd_scales_linearly_and_adam_by_the_square_root():
    assert "by 4 (linear rule, SGD)" in advice_for(tried(64), tried(256), record_with("SGD"))[1]
    assert "by 2 (square-root rule, AdamW)" in advice_for(tried(64), tried(256), record_with("AdamW"))[1]
    both = advice_for(tried(64), tried(256), record_with("Mystery"))[1]
    assert "by 4 for SGD" in both
    assert "by 2 for" in both


def test_a_smaller_batch_keeps_the_global_one_by_accumulation():
    lines = advice_for(tried(64, ranks=2), tried(16, ranks=2), record_with("SGD"))
    assert "from 128 to 32" in lines[0]
    assert "risk: algorithmic" in lines[0]
    assert "over 4 micro-batches of 32" in lines[2]


def test_the_same_global_batch_needs_no_advice():
    assert advice_for(tried(64), tried(64), record_with("SGD")) == ()
