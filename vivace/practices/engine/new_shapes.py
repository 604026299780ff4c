"""What input shapes that were not seen before cost a step: the figures of the practices that act on it. Pure.

A new shape asks the allocator for blocks of other sizes, cuDNN's autotuner for measurements, a compiled model for
another graph. The differential run with one batch again and again has none of that, so it tells the whole cost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vivace.practices.engine.pricing import allocator_ms, has_convolutions, phase_ms, retries_ms, step_ms

if TYPE_CHECKING:
    from vivace.practices.engine.probed import Probed
    from vivace.records.measurement import Measurement

__all__ = ["allocates", "allocations_ms", "autotuner_empties_the_cache", "described", "new_shapes_ms", "often_new"]

_NEW_SHARE = 0.1  # of the steps
_ALLOCATIONS = 0.1  # calls of the driver per step: a settled allocator makes none


def often_new(m: Measurement) -> bool:
    """Whether many of the timed steps had a shape that had not come before."""
    return m.inputs_vary and m.inputs.new > _NEW_SHARE * sum(m.inputs.repeats)


def allocates(m: Measurement) -> bool:
    """Whether the allocator still goes to the driver for memory in the timed steps."""
    use = m.allocator
    return use is not None and (use.device_allocs or 0) > _ALLOCATIONS * max(1, use.steps)


def autotuner_empties_the_cache(m: Measurement) -> bool:
    """Whether cuDNN measures convolutions again for new shapes. torch empties the allocator's cache each time, so that
    all memory is then asked for anew: that is the autotuner's cost, and no setting of the allocator mends it."""
    return bool(m.origin.flags.get("cudnn_benchmark")) and has_convolutions(m) and often_new(m)


def new_shapes_ms(m: Measurement, probed: Probed | None) -> float:
    """What the same batch again saves beside the wait for the loader; without that run, what the allocator is seen to
    cost the host."""
    if probed is not None and probed.same_batch_ms is not None:
        return max(0.0, step_ms(m) - probed.same_batch_ms - phase_ms(m, "loader"))
    return allocator_ms(m)


def allocations_ms(m: Measurement, probed: Probed | None) -> float:
    """The allocator's part of it: the host's time in its calls, and no more than new shapes cost in all. What retries
    cost is not in it where they are too rare to be profiled."""
    seen = allocator_ms(m)
    if allocates(m) and probed is not None and probed.same_batch_ms is not None:
        seen = min(seen, new_shapes_ms(m, probed)) if seen else new_shapes_ms(m, probed)
    return max(seen if allocates(m) else 0.0, retries_ms(m))


def described(m: Measurement) -> str:
    """How the shapes vary, in words."""
    steps = sum(m.inputs.repeats)
    return f"inputs had {len(m.inputs.repeats)} shapes in {steps} steps, {m.inputs.new} of them new"
