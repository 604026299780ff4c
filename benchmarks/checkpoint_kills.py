"""Trainings killed with SIGKILL at random moments and started again: are the losses those of an undisturbed run?

    python benchmarks/checkpoint_kills.py [--kills 50] [--seed 1]

The loop is ``tests/checkpoint/loop.py`` (dropout, batch norm, AdamW, schedule, scaler, average of the weights, three
random generators), alone and on two gloo ranks, saving every 5 steps, in the foreground and in the background. Writes
``results/checkpoint_kills.csv``, a row a kill; ``identical`` says whether every line that the whole series of lives
printed is bit for bit one of the undisturbed run.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

from checkpoint.lives import Life, by_step, kill_again_and_again, losses  # noqa: E402
from rows import Table, hardware, say  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "checkpoint_kills.csv"
FIELDS = (
    "ranks", "saves", "series", "kill", "killed_ranks", "reached_step", "resumed_step", "steps_lost", "identical",
    "hardware", "torch",
)  # fmt: skip
STEPS, SAVE_EVERY, PER_SERIES = 60, 5, 8
KINDS = [(1, ()), (2, ()), (1, ("--background",)), (2, ("--background",))]


def series(number: int, ranks: int, options: tuple[str, ...], kills: int, seed: int, table: Table) -> int:
    """One training, killed ``kills`` times."""
    with tempfile.TemporaryDirectory() as folder:
        whole = Life(Path(folder, "whole"), STEPS, ranks, options).wait()
        assert whole.codes == [0] * ranks, whole.err
        expected = by_step(losses(Path(folder, "whole")))
        assert sorted(expected) == list(range(STEPS))
        done, ends = kill_again_and_again(Path(folder, "killed"), STEPS, ranks, kills, seed, options)
        if ends[-1].codes != [0] * ranks:
            say(ends[-1].err)
        identical = by_step(losses(Path(folder, "killed"))) == expected
        for number_of_kill, kill in enumerate(done):
            table.add(
                ranks=ranks,
                saves="background" if options else "foreground",
                series=number,
                kill=number_of_kill,
                killed_ranks=" ".join(map(str, kill.ranks)),
                reached_step=kill.reached + 1,
                resumed_step="" if kill.resumed is None else kill.resumed,
                steps_lost="" if kill.resumed is None else kill.reached + 1 - kill.resumed,
                identical=identical,
            )
    return len(done)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    RESULTS.unlink(missing_ok=True)
    table, count, number = Table(RESULTS, FIELDS, hardware("cpu")), 0, 0
    while count < asked.kills:
        ranks, options = KINDS[number % len(KINDS)]
        count += series(number, ranks, options, min(PER_SERIES, asked.kills - count), asked.seed + number, table)
        number += 1


if __name__ == "__main__":
    main()
