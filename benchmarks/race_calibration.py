"""Does the 95 % interval of a race hold the truth in 95 % of races? Simulated, with the functions that ship.

    python benchmarks/race_calibration.py            # all of it, about 10 minutes on one core
    python benchmarks/race_calibration.py --quick    # 300 draws a cell, printed only

Each draw is a whole race of two entries: a round of one run each, the look after each round from the third on, the end
as soon as the answer is clear. ``coverage``: the share of races whose final interval holds the true ratio;
``false_faster``: the share that says "faster" although the entry is not (``speedup`` <= 1); ``decided``: the share that
says faster or slower; ``mean_rounds``: how many were run.

Kinds of times to target: log-normal and Weibull of several spreads, entries that scatter differently, a mixture in
which one run in ten takes twice as long, and times that an evaluation only every so often quantises (then the truth is
the ratio of what evaluations can see). ``arrive``: the share of the baseline's runs that arrive before the limit.

Wanted: coverage >= 94 % and false_faster <= 2.5 % in every row. Writes results/race_calibration.csv. No GPU needed.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import math
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vivace.race.statistics.comparing import is_clear, may_end, speedup
from vivace.race.statistics.looks import share_of_look
from vivace.race.statistics.sample import Estimate, Sample

__all__ = ["KINDS", "Cell", "Drawn", "draw", "tally"]

RESULTS = Path(__file__).parent / "results" / "race_calibration.csv"
FIELDS = ("kind", "seeds", "arrive", "speedup", "draws", "coverage", "false_faster", "decided", "mean_rounds")
SEEDS = (3, 5, 10)
SPEEDUPS = (1.0, 1.3, 0.75)
ARRIVE = (1.0, 0.9, 0.7)
Rng = np.random.Generator
Draw = Callable[[Rng, int], np.ndarray]


def _lognormal(spread: float) -> Draw:
    return lambda rng, n: np.exp(spread * rng.standard_normal(n))


def _weibull(shape: float) -> Draw:
    return lambda rng, n: rng.weibull(shape, n) / math.log(2) ** (1 / shape)


def _sometimes_twice(rng: Rng, n: int) -> np.ndarray:
    return np.exp(0.1 * rng.standard_normal(n)) * np.where(rng.random(n) < 0.1, 2.0, 1.0)


@dataclass(frozen=True)
class Kind:
    """Times to target in units of the median: of the baseline, and of the entry before its speedup."""

    baseline: Draw
    entry: Draw | None = None
    """None: as the baseline."""
    every: float = 0.0
    """An evaluation comes every so often (in units of the baseline's median); 0: all the time."""


KINDS = {
    "log-normal 5 %": Kind(_lognormal(0.05)),
    "log-normal 20 %": Kind(_lognormal(0.2)),
    "log-normal 50 %": Kind(_lognormal(0.5)),
    "Weibull 2": Kind(_weibull(2)),
    "Weibull 5": Kind(_weibull(5)),
    "entry noisier": Kind(_lognormal(0.1), _lognormal(0.3)),
    "one in ten twice as long": Kind(_sometimes_twice),
    "evaluated every 5 %": Kind(_lognormal(0.2), every=0.05),
    "evaluated every 20 %": Kind(_lognormal(0.2), every=0.20),
}


@dataclass(frozen=True)
class Cell:
    kind: str
    seeds: int
    arrive: float
    speedup: float

    def times(self, rng: Rng, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Of ``n`` runs each, without a limit; with the delay of each entry's own evaluations."""
        kind = KINDS[self.kind]
        sides = kind.baseline(rng, n), (kind.entry or kind.baseline)(rng, n) / self.speedup
        if not kind.every:
            return sides
        return tuple(np.ceil(side / kind.every) * kind.every for side in sides)  # type: ignore[return-value]


@dataclass(frozen=True)
class Drawn:
    ratio: Estimate
    rounds: int


def truth_and_limit(cell: Cell) -> tuple[float, float]:
    """The ratio that the procedure estimates, and the limit that the wanted share of the baseline meets."""
    baseline, entry = cell.times(np.random.default_rng(1), 400_000)
    limit = math.inf if cell.arrive == 1.0 else float(np.quantile(baseline, cell.arrive))
    if KINDS[cell.kind].every and cell.speedup != 1.0:
        return float(np.exp(np.log(baseline).mean() - np.log(entry).mean())), limit
    return cell.speedup, limit


def draw(cell: Cell, limit: float, rng: Rng) -> Drawn:
    baseline, entry = cell.times(rng, cell.seeds)
    known = None if math.isinf(limit) else limit
    share = share_of_look(cell.seeds)
    for rounds in range(1, cell.seeds + 1):
        a, b = (
            Sample(tuple(np.where(side[:rounds] <= limit, side[:rounds], np.inf).tolist()), known)
            for side in (baseline, entry)
        )
        if rounds < min(3, cell.seeds):
            continue
        ratio = speedup(a, b, share)
        if may_end(rounds, cell.seeds, [ratio]):
            return Drawn(ratio, rounds)
    raise AssertionError("a race ends with its last seed")


def tally(cell: Cell, draws: int) -> dict[str, object]:
    rng = np.random.default_rng(zlib.crc32(repr(cell).encode()))
    truth, limit = truth_and_limit(cell)
    drawn = [draw(cell, limit, rng) for _ in range(draws)]
    slack = 1e-9  # the exact rank test's ends are runs themselves
    covered = sum(d.ratio.low * (1 - slack) <= truth <= d.ratio.high * (1 + slack) for d in drawn) / draws
    false = sum(d.ratio.low > 1 for d in drawn) / draws if cell.speedup <= 1 else None
    return {
        "kind": cell.kind, "seeds": cell.seeds, "arrive": cell.arrive, "speedup": cell.speedup, "draws": draws,
        "coverage": round(covered, 4), "false_faster": "" if false is None else round(false, 4),
        "decided": round(sum(is_clear(d.ratio) for d in drawn) / draws, 4),
        "mean_rounds": round(sum(d.rounds for d in drawn) / draws, 2),
    }  # fmt: skip


def cells() -> Iterator[Cell]:
    for kind, seeds, arrive, gain in itertools.product(KINDS, SEEDS, ARRIVE, SPEEDUPS):
        yield Cell(kind, seeds, arrive, gain)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--only", default="", help="kinds that contain this; rows of the others stay as they are")
    options = parser.parse_args()
    rows = []
    for cell in cells():
        if options.only in cell.kind:
            rows.append(tally(cell, 300 if options.quick else options.draws))
            print(*rows[-1].values(), sep=",", flush=True)
    if not options.quick:
        kept = list(csv.DictReader(RESULTS.open())) if options.only and RESULTS.exists() else []
        rows = [row for row in kept if options.only not in row["kind"]] + rows
        rows.sort(key=lambda row: list(KINDS).index(str(row["kind"])))
        with RESULTS.open("w", newline="") as file:
            writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
