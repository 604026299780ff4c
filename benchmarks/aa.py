"""A/A: an unchanged job "tuned" with nothing, in real processes. The interval should hold 1, and nothing be proved.

    python benchmarks/aa.py --proofs 40 --device cpu
    python benchmarks/aa.py --proofs 10 --device cuda --minutes 6

Each proof is that of ``vivace tune``: two baselines, then pairs with the rule of when to add some. One, two and three
pairs are asked for in turn. The tuned side has ``probe:nothing``, which changes nothing. One row a proof in
results/aa.csv; started again, it goes on until there are ``--proofs`` rows of that device.
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import sys
import tempfile
from pathlib import Path

from rows import Clock, Table, hardware, say

from vivace.records.finding import Risk
from vivace.tune.attempts import Search
from vivace.tune.bench import Bench
from vivace.tune.comparison import speed
from vivace.tune.pairs import Verdict, paired
from vivace.tune.references import measured
from vivace.tune.searching import baseline_of
from vivace.tune.trials import TrialSettings

HERE = Path(__file__).resolve().parent
NOTHING = ("probe:nothing",)
SIZES = {"cpu": ("--width", "512", "-b", "128"), "cuda": ("--width", "2048", "-b", "512")}
FIELDS = (
    "proof", "device", "rounds", "pairs", "speedup", "low", "high", "covers_1", "proved", "harm", "unchanged_per_s",
    "tuned_per_s", "load", "seconds", "hardware", "torch",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--proofs", type=int, default=40)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--rounds", type=int, nargs="+", default=[1, 2, 3], help="asked for, in turn")
    parser.add_argument("--steps", type=int, default=40, help="timed steps of each run")
    parser.add_argument("--minutes", type=float, help="begin no proof after so many")
    parser.add_argument("--output", type=Path, default=HERE / "results" / "aa.csv")
    args = parser.parse_args()
    clock, table = Clock(args.minutes), Table(args.output, FIELDS, hardware(args.device))
    longest_s = 0.0
    for number in range(_done(args), args.proofs):
        if clock.left_s() < longest_s:
            say("no time for another proof")
            break
        before_s = clock.elapsed_s()
        prove_nothing(number, args.rounds[number % len(args.rounds)], args, table)
        longest_s = max(longest_s, clock.elapsed_s() - before_s)
    _sum_up(args)


def prove_nothing(number: int, rounds: int, args: argparse.Namespace, table: Table) -> None:
    command = (sys.executable, str(HERE / "aa_job.py"), "--device", args.device, *SIZES[args.device])
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(
            command, Path(folder), math.inf, TrialSettings(steps=args.steps), lambda *_: None, lambda _: None, say
        )  # fmt: skip
        found = baseline_of(bench, (Risk.EXACT, Risk.ROUNDING), 2 * rounds)
        verdict = paired(bench, found, NOTHING, rounds, "round")
        if verdict.ended is not None:
            raise RuntimeError(f"{verdict.ended.name}: {verdict.ended.outcome}: {verdict.ended.message}")
        table.add(proof=number, device=args.device, rounds=rounds, seconds=bench.used_s, **_row(found, verdict))


def _row(found: Search, verdict: Verdict) -> dict[str, object]:
    unchanged = [measured(found.baseline), measured(found.again), *(before for before, _ in verdict.pairs)]
    return {
        "pairs": len(verdict.pairs),
        "speedup": verdict.speedup.median,
        "low": verdict.speedup.low,
        "high": verdict.speedup.high,
        "covers_1": verdict.speedup.low <= 1.0 <= verdict.speedup.high,
        "proved": verdict.speedup.low > 1.0,
        "harm": verdict.harm.verdict if verdict.harm else "",
        "unchanged_per_s": " ".join(f"{speed(m):.5g}" for m in unchanged),
        "tuned_per_s": " ".join(f"{speed(after):.5g}" for _, after in verdict.pairs),
        "load": os.getloadavg()[0],
    }


def _done(args: argparse.Namespace) -> int:
    return len(_rows(args))


def _rows(args: argparse.Namespace) -> list[dict[str, str]]:
    if not args.output.exists():
        return []
    with args.output.open(newline="") as file:
        return [row for row in csv.DictReader(file) if row["device"] == args.device]


def _sum_up(args: argparse.Namespace) -> None:
    rows = [row for row in _rows(args) if row["pairs"]]
    covered, proved = (sum(row[name] == "True" for row in rows) for name in ("covers_1", "proved"))
    say(f"{len(rows)} proofs on {args.device}: {covered} intervals hold 1, {proved} prove a gain that is not there")


if __name__ == "__main__":
    main()
