"""Length bucketing: samples of similar length share a batch, so that little is padding and no rank waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vivace.practices.engine.loaders import spot, waited_for
from vivace.practices.engine.practice import Found, Practice
from vivace.practices.engine.pricing import compute_ms, role_ms, step_ms
from vivace.practices.engine.step_model import Shares, share_saved

if TYPE_CHECKING:
    from vivace.records.measurement import Measurement

_SMALLEST_SHARE = 0.05
_AT_MOST = 1.2  # R12 in planted_defects.csv: 2.06 expected, 2.20 measured


def find(m: Measurement) -> Found | None:
    padding = m.structure.padding_share or 0.0
    padded = _on_padding_ms(m, padding)
    # Ranks that compute different lengths wait for the longest; where their inputs are alike it has another cause.
    unbalanced = m.imbalance_ms or 0.0 if (m.input_imbalance or 0.0) > _SMALLEST_SHARE else 0.0
    exposed = padded + (1 - padding) * unbalanced  # without padding, there is also less to wait for
    if exposed <= _SMALLEST_SHARE * step_ms(m):
        return None
    parts = (
        [f"{padding:.0%} of the tokens are padding, on which {padded:.1f} ms of a step are spent"] if padding else []
    )
    if unbalanced:
        parts.append(f"the rank with the longest samples computes {unbalanced:.1f} ms per step more than the average")
    return Found(
        exposed_ms=exposed,
        likely=share_saved(exposed, Shares(1.0, 0.6, _AT_MOST)),
        evidence={
            "padding_share": round(padding, 3),
            "imbalance_ms": round(m.imbalance_ms, 3) if m.imbalance_ms is not None else None,
            "input_imbalance": round(m.input_imbalance, 3) if m.input_imbalance is not None else None,
            "input_shapes": m.input_shapes,
            "ranks": max(1, len(m.ranks)),
        },
        says="; ".join(parts),
        where=spot(waited_for(m)),
    )


def _on_padding_ms(m: Measurement, padding: float) -> float:
    """Most work grows with the length, attention with its square: written out, also its softmax, masks and products."""
    squares = ("attention",) if m.structure.attention else ("softmax", "elementwise", "matmul", "other")
    has_attention = bool(m.structure.attention or m.structure.softmax_squares)
    known = role_ms(m, *(m.profile.roles_ms if m.profile is not None else ()))
    share = role_ms(m, *squares) / known if known and has_attention else 0.0
    return compute_ms(m) * (share * (1 - (1 - padding) ** 2) + (1 - share) * padding)


PRACTICE = Practice(
    name="length_bucketing",
    title="batches of similar length",
    family="structure",
    same_arithmetic=False,
    risk="algorithmic",
    source="R12: batches of about constant token count, bucketing or sorting by length within each global batch.",
    why=(
        "A batch is as long as its longest sample; the rest is padding, and is computed all the same. Of several ranks "
        "the one with the longest batch makes the others wait. Sorted by length within a window of many batches, the "
        "samples of a batch are alike. The order of the samples changes, so it is another training, on the same data."
    ),
    by_hand=(
        "lengths = [len(sample) for sample in dataset]   # once\n"
        "order = torch.randperm(len(lengths)).tolist()   # these lines again in every epoch\n"
        "windows = [order[i : i + 100 * batch_size] for i in range(0, len(order), 100 * batch_size)]\n"
        "order = [i for window in windows for i in sorted(window, key=lengths.__getitem__)]\n"
        "batches = [order[i : i + batch_size] for i in range(0, len(order), batch_size)]\n"
        "random.shuffle(batches)\n"
        "loader = DataLoader(dataset, batch_sampler=batches, collate_fn=pad)   # per rank: batches[rank::world_size]"
    ),
    find=find,
)
