"""preallocate where the card is full: lengths vary, and the allocator starts again."""

from __future__ import annotations

import pytest
from practices.evidence import measurement

from vivace.practices import preallocate


def test_preallocation_is_advised_when_shapes_vary_and_the_allocator_starts_again():
    found = preallocate.find(measurement(memory={"alloc_retries": 40}, input_shapes=20, roles={"matmul": 70.0}))
    assert found is not None
    assert found.exposed_ms == pytest.approx(30.0)
    assert found.why_not is not None  # the card is full: no block can be taken


@pytest.mark.parametrize(
    "present",
    [
        {"input_shapes": 20},  # nothing was tried again
        {"memory": {"alloc_retries": 40}},  # one shape: the first batch is the longest
        {"input_shapes": 20, "on_gpu": False},
    ],
)
def test_preallocation_is_not_advised_otherwise(present: dict):
    assert preallocate.find(measurement(**present)) is None
