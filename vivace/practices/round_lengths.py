"""Rounded lengths: batches padded to a multiple, so that few shapes come, and come again. By hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vivace.practices.engine.loaders import spot, waited_for
from vivace.practices.engine.new_shapes import allocates, described, new_shapes_ms, often_new
from vivace.practices.engine.practice import Found, Practice, Saved
from vivace.practices.engine.pricing import allocator_ms, step_ms

if TYPE_CHECKING:
    from vivace.practices.engine.probed import Probed
    from vivace.records.measurement import Measurement

_SMALLEST_SHARE = 0.05
_PADDED_MORE = 0.05  # of a step: what lengths that are rounded up add in computing, about


def find(m: Measurement) -> Found | None:
    return _found(m, None)


def find_probed(m: Measurement, probed: Probed) -> Found | None:
    return _found(m, probed)


def _found(m: Measurement, probed: Probed | None) -> Found | None:
    if not often_new(m):
        return None
    cost = new_shapes_ms(m, probed)
    if cost <= _SMALLEST_SHARE * step_ms(m):
        return None
    use = m.allocator
    likely = max(0.0, cost - _PADDED_MORE * step_ms(m))
    return Found(
        exposed_ms=cost,
        likely=Saved(likely, 0.6 * likely, cost),
        idle_ms=cost,
        evidence={
            "shapes": len(m.inputs.repeats),
            "steps": sum(m.inputs.repeats),
            "new_shapes": m.inputs.new,
            "driver_allocations": use.device_allocs if use is not None else None,
            "allocator_host_ms": round(allocator_ms(m), 3),
            "recompiled": m.recompiled,
            "same_batch_ms": round(probed.same_batch_ms, 3) if probed and probed.same_batch_ms is not None else None,
        },
        says=f"{described(m)}: {_costs(m)} {cost:.1f} ms per step",
        where=spot(waited_for(m)),
    )


def _costs(m: Measurement) -> str:
    parts = ["memory asked for anew"] if allocates(m) else []
    parts += ["cuDNN measuring again"] if m.origin.flags.get("cudnn_benchmark") else []
    parts += [f"{m.recompiled} graphs compiled"] if m.recompiled else []
    return f"with {' and '.join(parts)} they cost" if parts else "they cost"


PRACTICE = Practice(
    name="round_lengths",
    title="lengths rounded up to a few values",
    family="structure",
    risk="rounding",
    source=(
        "R12: batches of about constant size; R13: preallocation for variable lengths; R10: cudnn.benchmark only where "
        "sizes stay the same."
    ),
    why=(
        "A batch padded to its own longest sample has a shape that hardly ever comes again. For a new shape the "
        "allocator finds no block of its size and goes to the driver, cuDNN's autotuner measures again, a compiled "
        "model is compiled again. Rounded up to a multiple, lengths take a few values, all of which come early. The "
        "padding is masked as before; a little more of it is computed."
    ),
    by_hand=(
        "def pad(samples, multiple=64):                     # collate_fn\n"
        "    longest = max(len(sample) for sample in samples)\n"
        "    length = -(-longest // multiple) * multiple    # rounded up; mask or ignore the padding as before\n"
        "    return torch.stack([F.pad(sample, (0, length - len(sample))) for sample in samples])\n"
        "# samples of more dimensions: pad their time axis. Batches of similar length (length_bucketing) waste less."
    ),
    find=find,
    find_probed=find_probed,
    for_new_shapes=True,
)
