"""Lines of the script that hold the loop up, whatever they do: found by sampling the stack, one finding each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vivace.practices.engine.practice import Found, Practice, Saved, never_found
from vivace.practices.engine.pricing import on_gpu

if TYPE_CHECKING:
    from vivace.practices.engine.practice import Evidence
    from vivace.records.ledger import Ledger, Row
    from vivace.records.measurement import Measurement

_SMALLEST_SHARE = 0.05  # of the step: less may be the sampling's own error, and is hardly worth an edit
_MOST = 5
_CAUSES = ("host", "logging", "saving", "gc")
_TITLES = {
    "gc": "the garbage collector in the loop",
    "logging": "logging in the loop",
    "saving": "saving in the loop",
    "data": "a line that makes the batch in the loop",
}
_LEAST_SAVED = 0.5  # a line is rarely needless: it moves, or runs less often


def find_all(m: Measurement) -> tuple[Found, ...]:
    if m.ledger is None:
        return ()
    smallest = _SMALLEST_SHARE * m.ledger.step_ms
    rows = [row for row in m.ledger.rows if row.ms >= smallest and (_holds_up(row) or _makes_the_batch(row, m.ledger))]
    return tuple(_found(row, m.ledger.step_ms, on_gpu(m)) for row in rows[:_MOST])


def _holds_up(row: Row) -> bool:
    """Many small lines together are none that stands out."""
    return row.cause in _CAUSES and (row.where is not None or row.cause == "gc")


def _makes_the_batch(row: Row, ledger: Ledger) -> bool:
    """A line of the data set, its transforms or the collate function that runs in the loop itself. What the loader's
    own code takes beneath the loop is none of the script's lines; with workers, the loop only waits."""
    return row.cause == "data" and row.where is not None and ledger.workers is None and not _is_the_loader(row)


def _is_the_loader(row: Row) -> bool:
    return row.via.startswith("torch.utils.data")


def _found(row: Row, step_ms: float, gpu_is_idle: bool) -> Found:
    evidence: Evidence = {
        "ms_per_step": round(row.ms, 3), "waiting_ms": round(row.waiting_ms, 3), "share": round(row.ms / step_ms, 4),
        "cause": str(row.cause), "via": row.via or None,
    }  # fmt: skip
    return Found(
        exposed_ms=row.ms,
        idle_ms=row.ms if gpu_is_idle else 0.0,
        likely=Saved(row.ms, _LEAST_SAVED * row.ms, row.ms),
        evidence=evidence,
        title=_TITLES.get(row.cause),
        says=_says(row, step_ms, "the GPU waits" if gpu_is_idle else "the loop waits"),
        where=(row.where.file, row.where.line) if row.where is not None else None,
        by_hand=row.to_do,
    )


def _says(row: Row, step_ms: float, who_waits: str) -> str:
    took = f"{row.ms:.1f} of {step_ms:.1f} ms per step"
    if row.where is None:
        return f"the garbage collector runs for {took}"
    range_ = f" (or one of the lines from {row.where.first_line} on)" if row.where.first_line < row.where.line else ""
    via = f", in {row.via}" if row.via else ""
    return f"{who_waits} for {took} while the host is in `{row.where.code}`{range_}{via}"


PRACTICE = Practice(
    name="host_lines",
    title="a line that holds the loop up",
    family="host",
    risk="exact",
    source="Measured: the stack of the training's thread, sampled a thousand times a second.",
    why=(
        "A step can wait for anything: a log line, a sleep, a lock, a file, a loop in Python, the garbage collector. "
        "Sampling names the line, whatever it does. What no practice explains is still shown, with its time."
    ),
    by_hand="Take the line out of the loop, run it less often, or let another thread or process do it.",
    find=never_found,
    find_all=find_all,
)
