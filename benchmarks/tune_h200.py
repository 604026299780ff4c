"""Does `vivace tune`, without an edit, reach what an expert writes by hand? Both in one run, in turn, on one GPU.

    python benchmarks/tune_h200.py --budget 20
    python benchmarks/tune_h200.py --only gpt --tune-minutes 4
    python benchmarks/tune_h200.py --only resnet --words tf32,cudnn_benchmark,channels_last,bf16,fused_optimizer,compile
    python benchmarks/tune_h200.py --quick --device cpu

For each script: `vivace tune` finds a set of practices (its time and its own speedup are the row ``tune``); then the
script with that set and the hand-tuned loops of handtuned.py run in turn, each in a fresh process, measured by the same
code. The row ``tuned`` holds the ratio to each hand-tuned side, with a 95 % interval over the rounds.

Sides of ResNet: ``hand`` is the reference loop, with one batch already on the GPU and nothing but the step;
``hand_same_data`` has the script's own loader, metrics and schedule. GPT has one hand-tuned side: its data path is the
script's. Aim: at least 0.95 of ``hand``, and at most ten minutes of tuning. Appends to results/tune_h200.csv.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rows import Clock, Table, hardware, say
from sides import EXAMPLES, Side, ratio, run_rounds, vivace_json

HERE = Path(__file__).parent
FIELDS = (
    "script", "side", "samples_per_s", "samples_per_s_low", "samples_per_s_high", "rounds", "against", "ratio",
    "ratio_low", "ratio_high", "practices", "seconds", "note", "hardware", "torch",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    name: str
    script: str
    flags: tuple[str, ...]
    quick: tuple[str, ...]
    hands: dict[str, tuple[str, ...]]
    """Hand-tuned sides: the words after `handtuned.py`, before the flags."""

    def command(self, quick: bool, device: str) -> list[str]:
        return [sys.executable, str(EXAMPLES / self.script), *self._flags(quick, device)]

    def hand_sides(self, quick: bool, device: str) -> list[Side]:
        program = [sys.executable, str(HERE / "handtuned.py")]
        return [Side(name, [*program, *words, *self._flags(quick, device)]) for name, words in self.hands.items()]

    def _flags(self, quick: bool, device: str) -> list[str]:
        return [*(self.quick if quick else self.flags), "--device", device]


CASES = (
    Case(
        name="resnet",
        script="dlojz.py",
        flags=("--model", "resnet50", "-b", "256"),
        quick=("--model", "resnet18", "-b", "8", "--image-size", "32", "--num-workers", "1", "--dataset-size", "4000"),
        hands={"hand": ("resnet",), "hand_same_data": ("resnet", "--data", "loader")},
    ),
    Case(
        name="gpt",
        script="gpt.py",
        # GPT-2 with 124 million parameters; 16 x 1024 tokens: a step of 0.3 s in fp32, a tenth of that when tuned.
        flags=(
            "--layers", "12", "--width", "768", "--heads", "12", "--length", "1024", "-b", "16",
            "--vocab-size", "50304", "--steps", "100000", "--eval-interval", "100000",
        ),
        quick=("--layers", "2", "--width", "32", "--heads", "2", "--length", "32", "-b", "4"),
        hands={"hand": ("gpt",)},
    ),
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=("cpu", "cuda"))
    parser.add_argument("--only", choices=[case.name for case in CASES], help="one script")
    parser.add_argument("--budget", type=float, help="minutes for everything")
    parser.add_argument("--tune-minutes", type=float, default=6.0, help="minutes for each tune")
    parser.add_argument("--tune-rounds", type=int, default=3, help="paired runs that each tune's proof rests on")
    parser.add_argument("--words", help="practices to take, instead of what a tune finds")
    parser.add_argument("--against", help="hand-tuned sides to run, separated by commas; default: all of the script's")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=60, help="timed steps of each run in the comparison")
    parser.add_argument("--quick", action="store_true", help="tiny models, one round: does it run?")
    parser.add_argument("--output", type=Path, default=HERE / "results" / "tune_h200.csv")
    parser.add_argument("--runs", type=Path, help="folder for trials and logs; default: a temporary one")
    args = parser.parse_args()
    if args.quick:
        args.rounds, args.steps, args.tune_rounds = 1, 5, 1

    clock, table = Clock(args.budget), Table(args.output, FIELDS, hardware(args.device))
    with tempfile.TemporaryDirectory() as temporary:
        runs = (args.runs or Path(temporary)).resolve()
        for case in CASES:
            if args.only in (None, case.name):
                say(f"=== {case.name}, {clock.left_s():.0f} s left")
                table.attempt(clock, lambda case=case: compare(case, args, runs / case.name, table, clock),
                              script=case.name, side="all")  # fmt: skip


def compare(case: Case, args: argparse.Namespace, runs: Path, table: Table, clock: Clock) -> None:
    command = case.command(args.quick, args.device)
    words: list[str] = []

    def tune() -> None:
        words.extend(args.words.split(",") if args.words else tuned_words(case, command, args, runs, table, clock))

    table.attempt(clock, tune, script=case.name, side="tune")
    wanted = args.against.split(",") if args.against else case.hands
    hands = [side for side in case.hand_sides(args.quick, args.device) if side.name in wanted]
    tuned = [Side("tuned", command, words)] if words else []
    run_rounds([hands[0], *tuned, *hands[1:]], args.rounds, args.steps, runs / "rounds", clock)
    for side in (*hands, *tuned):
        add_side(case, side, table)
    for side in tuned:
        for hand in hands:
            add_ratio(case, side, hand, table)


def tuned_words(
    case: Case, command: list[str], args: argparse.Namespace, runs: Path, table: Table, clock: Clock
) -> list[str]:
    """What `vivace tune` takes; its own figures become two rows."""
    minutes = min(args.tune_minutes, clock.left_s() / 60)
    arguments = ["tune", "--budget", f"{minutes:.2f}", "--rounds", str(args.tune_rounds), "--output", str(runs)]
    arguments += ["--steps", str(args.steps)] if args.quick else []
    proof = vivace_json(arguments, command, clock.timeout_s(60 * minutes + 120), runs / "tune.log")
    words = [gain["practice"] for gain in proof["practices"]]
    speedup, before, after = proof["speedup"], proof.get("before") or {}, proof.get("after") or {}
    table.add(script=case.name, side="untouched", samples_per_s=before.get("samples_per_s"), note="in the tune's pairs")
    table.add(
        script=case.name,
        side="tune",
        samples_per_s=after.get("samples_per_s"),
        against="untouched",
        ratio=speedup["median"],
        ratio_low=speedup["low"],
        ratio_high=speedup["high"],
        practices=" ".join(words),
        seconds=proof.get("seconds"),
        note=f"{len(proof['trials'])} trials; losses: {(proof.get('harm') or {}).get('verdict', 'not told')}",
    )
    return words


def add_side(case: Case, side: Side, table: Table) -> None:
    speeds = side.speeds
    table.add(
        script=case.name,
        side=side.name,
        samples_per_s=statistics.median(speeds) if speeds else None,
        samples_per_s_low=min(speeds, default=None),
        samples_per_s_high=max(speeds, default=None),
        rounds=len(speeds),
        practices=" ".join(side.words),
        seconds=side.seconds,
        note=side.failed or _refused(side),
    )


def add_ratio(case: Case, tuned: Side, hand: Side, table: Table) -> None:
    if not tuned.speeds or not hand.speeds:
        return
    reached = ratio(tuned, hand)
    table.add(
        script=case.name,
        side=tuned.name,
        rounds=min(len(tuned.speeds), len(hand.speeds)),
        against=hand.name,
        ratio=reached.median,
        ratio_low=reached.low,
        ratio_high=reached.high,
        practices=" ".join(tuned.words),
    )


def _refused(side: Side) -> str:
    """Practices that were asked for and did not apply: the record says why."""
    told = side.records[-1].practices if side.records else {}
    return "; ".join(f"{word}: {what}" for word, what in told.items() if not what.applied)


if __name__ == "__main__":
    main()
