"""Prefetch: more batches wait ready in the loader's queue, so that a slow one now and then is not felt."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

from vivace.practices.engine.change import Change, NotApplicable
from vivace.practices.engine.loaders import rare_waits, spot, waited_for, waits_ms
from vivace.practices.engine.practice import Found, Practice
from vivace.practices.engine.pricing import step_ms
from vivace.practices.engine.step_model import Shares, share_saved

if TYPE_CHECKING:
    from vivace.records.measurement import Measurement

_DEFAULT, _USUAL, _MOST = 2, 4, 16  # torch's own factor; the one that is set without an argument
_SMALLEST_SHARE = 0.03
_SAVED = Shares(0.5, 0.0, 1.0)  # of the waits; 0.99 times as fast where it was tried (engine/gains.csv)


class Prefetch(Change):
    def __init__(self, argument: str | None = None) -> None:
        super().__init__(argument)
        if argument is not None and not (argument.isdecimal() and int(argument) > 0):
            raise ValueError(f"{argument!r} is not a number of batches per worker")

    def loader(self, arguments: dict[str, Any]) -> None:
        wanted = int(self.argument) if self.argument else _USUAL
        if arguments["num_workers"] == 0:
            raise NotApplicable("the loader has no workers that could prepare batches ahead")
        if (arguments["prefetch_factor"] or _DEFAULT) >= wanted:
            raise NotApplicable(f"the loader already prepares {arguments['prefetch_factor'] or _DEFAULT} a worker")
        arguments["prefetch_factor"] = wanted
        self.applied(f"{wanted} batches a worker are prepared ahead")


def find(m: Measurement) -> Found | None:
    loader = waited_for(m)
    if loader is None or loader.num_workers == 0:
        return None
    factor = loader.prefetch_factor or _DEFAULT
    exposed = waits_ms(m, loader)
    waits = rare_waits(m, loader)
    if factor >= _MOST or not waits or exposed < _SMALLEST_SHARE * step_ms(m):
        return None
    return Found(
        exposed_ms=exposed,
        likely=share_saved(exposed, _SAVED),
        evidence={
            "loader_wait_ms": round(exposed, 3),
            "median_wait_ms": round(median(m.series_ms["loader"]), 3),
            "waits": len(waits),
            "longest_wait_ms": round(max(waits), 3),
            "prefetch_factor": factor,
        },
        says=(
            f"{len(waits)} of {m.steps} steps wait for the loader, up to {max(waits):.0f} ms, most do not: a longer "
            f"queue than {factor} batches a worker would bridge them"
        ),
        where=spot(loader),
        setting=f"prefetch={min(_MOST, 2 * factor)}",
        by_hand=f"DataLoader(…, num_workers={loader.num_workers}, prefetch_factor={min(_MOST, 2 * factor)})",
    )


def lines(batches: str) -> str:
    return f"DataLoader(…, prefetch_factor={batches})   # needs num_workers of 1 or more"


PRACTICE = Practice(
    name="prefetch",
    title="longer queue of prepared batches",
    family="loader",
    risk="exact",
    source="R1: asynchronous loading. DLO-JZ, DataLoader lab: prefetch_factor.",
    why=(
        "Each worker prepares two batches ahead. A slow file, a large image or a busy disk then shows as a wait. A "
        "longer queue bridges such moments; it does not help when the workers are too slow on average. Takes the host "
        "memory of the batches that wait."
    ),
    by_hand="loader = DataLoader(dataset, …, num_workers=8, prefetch_factor=4)",
    find=find,
    change=Prefetch,
    argument="N",
    lines=lines,
    order=15,
)
