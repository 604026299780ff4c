"""Does the 95 % interval of a proof hold the truth in 95 % of proofs? Simulated, with the functions that ship.

    python benchmarks/proof_calibration.py            # all of it, about 20 minutes on one core
    python benchmarks/proof_calibration.py --quick    # 200 draws a cell, another file

Each draw is a whole proof on a made-up machine (``simulated_runs.py``): two baselines and a search, then ``paired``
with its rule of when to add pairs. ``proved`` is the share of proofs whose interval lies above 1: false proofs where
``gain`` is 1, power elsewhere. ``width`` is the median of high / low - 1. Wanted: coverage of 94 % or more, and 2.5 %
false proofs or fewer, in every row whose ``part`` is "grid". The other parts:

- "before": the procedure as it was (``proof_before.py``).
- "tuned side": tuned runs that are noisier or steadier than the unchanged job's. One pair cannot see that.
- "out of time": the time is over after the first pair of those asked for, and nobody goes on.
- "resumed": the same, and who finds no proof goes on with more time.
- "whole proof": ``prove`` with two practices, one of them of no use or harmful to the speed, so that it leaves one out
  and may choose between two sets. ``proved`` counts proofs that recommend something; ``coverage`` is of what they say.
- "last", "alone": the figures of its single practices, from one run each.

Writes results/proof_calibration.csv. No GPU needed.
"""

from __future__ import annotations

import argparse
import csv
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from proof_before import decided_before, speedup_before
from simulated_runs import Machine, Session, Steps, searched

from vivace.records.proof import Interval
from vivace.tune.comparison import Pair, baseline_first
from vivace.tune.pairs import paired
from vivace.tune.proving import prove
from vivace.tune.references import measured

__all__ = ["Cell", "Drawn", "Tally", "draw_after", "draw_before", "tally"]

RESULTS = Path(__file__).parent / "results" / "proof_calibration.csv"
WORD, OTHER = "bf16", "channels_last"
ROUNDS = (1, 2, 3, 4, 5)
NOISES = (0.0, 0.01, 0.03, 0.06, 0.10)
GAINS = (1.0, 1.05, 1.3)
DRIFT = 0.10
KINDS = {
    "independent": Machine(0.0),
    "drift of 10 %": Machine(0.0, drift=DRIFT),
    **{kind.value: Machine(0.0, kind) for kind in Steps if kind is not Steps.INDEPENDENT},
}
_ONE_PAIR_S = 55.0  # the search and one pair, and not a second one
FIELDS = (
    "part", "rounds", "run_noise", "machine", "tuned_noise", "gain", "draws",
    "coverage", "proved", "mean_pairs", "width",
)  # fmt: skip


@dataclass(frozen=True)
class Cell:
    part: str
    rounds: int
    machine: Machine
    kind: str
    gain: float
    other_gain: float = 1.0
    """Of a second practice, where whole proofs are drawn."""

    def session(self, draw: int, budget_s: float = math.inf) -> Session:
        """The same draw gives the same runs."""
        noise, kind = round(1000 * self.machine.run_noise), list(KINDS).index(self.kind)
        seed = [draw, self.rounds, noise, kind, round(1000 * self.gain), round(1000 * self.other_gain)]
        gains = {WORD: self.gain, OTHER: self.other_gain}
        return Session(self.machine, gains, self.rounds, np.random.default_rng(seed), budget_s)


@dataclass(frozen=True)
class Drawn:
    """What one proof says, and the truth."""

    interval: Interval
    truth: float
    pairs: int
    proved: bool


@dataclass(frozen=True)
class Tally:
    draws: int
    coverage: float
    proved: float
    mean_pairs: float
    width: float


def draw_after(cell: Cell, draw: int, budget_s: float = math.inf) -> Drawn:
    """A proof as it ships."""
    session = cell.session(draw, budget_s)
    verdict = paired(session, searched(session, (WORD,)), (WORD,), cell.rounds, "round")  # type: ignore[arg-type]
    return Drawn(verdict.speedup, cell.gain, len(verdict.pairs), verdict.speedup.low > 1.0)


def draw_before(cell: Cell, draw: int) -> Drawn:
    session = cell.session(draw)
    found = searched(session, (WORD,))
    unchanged = [measured(found.baseline), measured(found.again)]
    pairs: list[Pair] = []
    while True:
        order = ((), (WORD,)) if baseline_first(len(pairs)) else ((WORD,), ())
        runs = {words: measured(session.run("round", words)) for words in order}
        pairs.append((runs[()], runs[(WORD,)]))
        if len(pairs) < cell.rounds:
            continue
        speedup = speedup_before(pairs, unchanged)
        if decided_before(speedup, len(pairs), found.noise):
            return Drawn(speedup, cell.gain, len(pairs), speedup.low > 1.0)


def draw_out_of_time(cell: Cell, draw: int) -> Drawn:
    return draw_after(cell, draw, budget_s=_ONE_PAIR_S)


def draw_resumed(cell: Cell, draw: int) -> Drawn:
    first = draw_out_of_time(cell, draw)
    return first if first.proved else draw_after(cell, draw)


def draw_whole(cell: Cell, draw: int) -> list[tuple[str, Drawn]]:
    """The proof itself, and the figures of its practices."""
    session = cell.session(draw)
    proof = prove(session, searched(session, (WORD, OTHER)), cell.rounds)  # type: ignore[arg-type]
    kept = [gain.practice for gain in proof.practices]
    truth = math.prod(session.gains[word] for word in kept)
    drawn = [("whole proof", Drawn(proof.speedup, truth, proof.pairs, bool(kept)))]
    for gain in proof.practices:
        for part, figure in (("last", gain.last), ("alone", gain.alone)):
            if figure is not None and len(kept) > 1:
                drawn.append((part, Drawn(figure, session.gains[gain.practice], proof.pairs, figure.low > 1.0)))
    return drawn


def tally(drawn: Sequence[Drawn]) -> Tally:
    inside = [one.interval.low <= one.truth <= one.interval.high for one in drawn]
    return Tally(
        draws=len(drawn), coverage=float(np.mean(inside)), proved=float(np.mean([one.proved for one in drawn])),
        mean_pairs=float(np.mean([one.pairs for one in drawn])),
        width=float(np.median([one.interval.high / one.interval.low - 1 for one in drawn])),
    )  # fmt: skip


def grid(part: str) -> Iterator[Cell]:
    for kind, machine in KINDS.items():
        for rounds in ROUNDS:
            for noise in NOISES:
                for gain in GAINS:
                    yield Cell(part, rounds, replace(machine, run_noise=noise), kind, gain)


def others() -> Iterator[tuple[Cell, Callable[[Cell, int], Drawn]]]:
    for tuned_noise in (2.0, 0.5):
        for rounds in ROUNDS:
            for gain in GAINS:
                yield (
                    Cell("tuned side", rounds, Machine(0.03, tuned_noise=tuned_noise), "independent", gain),
                    draw_after,
                )
    for part, draw in (("out of time", draw_out_of_time), ("resumed", draw_resumed)):
        for rounds in (2, 3, 5):
            for noise in (0.01, 0.03, 0.06):
                for gain in GAINS:
                    yield Cell(part, rounds, Machine(noise), "independent", gain), draw


def whole() -> Iterator[Cell]:
    for rounds in (1, 3):
        for noise in (0.01, 0.03, 0.06):
            for gain, other_gain in ((1.0, 1.0), (1.3, 1.0), (1.3, 0.95), (1.3, 1.1)):
                yield Cell("whole proof", rounds, Machine(noise), "independent", gain, other_gain)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=2000, help="proofs a cell")
    parser.add_argument("--draws-before", type=int, default=500, help="of the old procedure, which is slow")
    parser.add_argument("--quick", action="store_true", help="few draws, into proof_calibration_quick.csv")
    parser.add_argument("--output", type=Path, default=RESULTS)
    args = parser.parse_args()
    if args.quick:
        args.draws, args.draws_before, args.output = 200, 100, RESULTS.with_name("proof_calibration_quick.csv")
    began = time.monotonic()
    with args.output.open("w", newline="") as file:
        table = csv.DictWriter(file, FIELDS, lineterminator="\n")
        table.writeheader()
        for cell in grid("grid"):
            _write(table, cell, [draw_after(cell, draw) for draw in range(args.draws)])
        for cell, draw_one in others():
            _write(table, cell, [draw_one(cell, draw) for draw in range(args.draws)])
        for cell in whole():
            _write_whole(table, cell, args.draws // 2)
        for cell in grid("before"):
            if cell.kind in ("independent", "drift of 10 %"):
                _write(table, cell, [draw_before(cell, draw) for draw in range(args.draws_before)])
        file.flush()
    print(f"{time.monotonic() - began:.0f} s")


def _write_whole(table: csv.DictWriter[str], cell: Cell, draws: int) -> None:
    drawn = [one for draw in range(draws) for one in draw_whole(cell, draw)]
    for part in ("whole proof", "last", "alone"):
        if of_part := [one for name, one in drawn if name == part]:
            _write(table, replace(cell, part=part), of_part)


def _write(table: csv.DictWriter[str], cell: Cell, drawn: Sequence[Drawn]) -> None:
    found = tally(drawn)
    gain = f"{cell.gain:g}" + (f" and {cell.other_gain:g}" if cell.part in ("whole proof", "last", "alone") else "")
    row = {
        "part": cell.part, "rounds": cell.rounds, "run_noise": f"{cell.machine.run_noise:g}", "machine": cell.kind,
        "tuned_noise": f"{cell.machine.tuned_noise:g}", "gain": gain, "draws": found.draws,
        "coverage": f"{found.coverage:.4f}", "proved": f"{found.proved:.4f}", "mean_pairs": f"{found.mean_pairs:.2f}",
        "width": f"{found.width:.4f}",
    }  # fmt: skip
    table.writerow(row)
    print("  ".join(f"{name}={value}" for name, value in row.items()), flush=True)


if __name__ == "__main__":
    main()
