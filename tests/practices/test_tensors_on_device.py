"""Tensors made on their device: found when the host makes them and copies them, priced by their share of the copies."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from practices.changed import needs_gpu
from practices.evidence import measurement

from vivace.practices.tensors_on_device import PRACTICE, find
from vivace.records.measurement import Copies
from vivace.records.structure import Spot

NOISE = Spot(file="/home/me/gan.py", line=31, code="z = torch.randn(n, 100).cuda()", copies=2, mib=30.0)
MASK = Spot(file="/home/me/gan.py", line=40, code="m = torch.ones(n).to(d)", copies=1, mib=10.0)
COPIES = Copies(kind="Memcpy HtoD (Pageable -> Device)", per_step=4, ms_per_step=6.0, mib_per_step=80.0)


def test_found_and_priced_by_their_share_of_what_is_copied():
    found = find(
        measurement(phases={"copy": 8.0}, structure={"host_made": (MASK, NOISE)}, profile={"copies": (COPIES,)})
    )
    assert found is not None
    assert found.exposed_ms == 4.0  # half of the copied bytes
    assert found.where == ("/home/me/gan.py", 31)  # the largest first
    assert found.evidence["copies_per_step"] == 3
    assert "gan.py:31 `z = torch.randn(n, 100).cuda()`" in str(found.evidence["lines"])


def test_where_the_host_takes_time_to_make_them_the_idle_gpu_counts():
    slow = NOISE.model_copy(update={"made_ms": 12.0})
    at_once = NOISE.model_copy(update={"made_ms": 0.2})
    prices = [
        found.exposed_ms
        for spot in (slow, at_once)
        if (found := find(measurement(structure={"host_made": (spot,)}, profile={"copies": (COPIES,)},
                                      roles={"matmul": 60.0}, phases={"loader": 10.0})))
    ]  # fmt: skip
    copies = 6.0 * 30 / 80
    assert prices == pytest.approx([copies + 24.0, copies])  # of 100 ms: 60 in products, 6 in copies, 10 in the loader


def test_copies_inside_a_forward_count_too():
    """They are part of the forward's time, so only the profile knows them."""
    found = find(measurement(structure={"host_made": (NOISE,)}, profile={"copies": (COPIES,)}))
    assert found is not None
    assert found.exposed_ms == pytest.approx(6.0 * 30 / 80)


@pytest.mark.parametrize(
    "present",
    [
        {"structure": {}, "phases": {"copy": 8.0}, "profile": {"copies": (COPIES,)}},
        {"structure": {"host_made": (NOISE,)}},  # takes no time
        {"structure": {"host_made": (NOISE.model_copy(update={"mib": 0.01}),)}, "profile": {"copies": (COPIES,)}},
        {"structure": {"host_made": (NOISE,)}, "profile": {"copies": (COPIES,)}, "on_gpu": False},
    ],
)
def test_not_found_when_present_or_of_no_cost(present: dict):
    assert find(measurement(**present)) is None


def test_only_the_user_can_change_it():
    assert PRACTICE.change is None
    assert 'device="cuda"' in PRACTICE.by_hand


@pytest.mark.gpu
@needs_gpu
def test_on_a_gpu_measuring_points_at_the_line_that_makes_it(vivace_here: Callable, tmp_path: Path):
    path = tmp_path / "gan.py"
    path.write_text(
        "import torch\n"
        "model = torch.nn.Linear(1024, 1).cuda()\n"
        "optimizer = torch.optim.SGD(model.parameters(), 0.01)\n"
        "for _ in range(60):\n"
        "    noise = torch.randn(1024, 1024)\n"
        "    model(noise.cuda()).sum().backward()\n"
        "    optimizer.step()\n"
    )
    record = vivace_here("measure", "--json", "--steps", "5", "--", sys.executable, str(path)).record
    (spot,) = record["structure"]["host_made"]
    assert (spot["line"], spot["copies"], spot["mib"]) == (5, 1, 4.0)
    assert spot["made_ms"] > 0
