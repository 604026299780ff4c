"""Ratios of practices switched inside one process, beside those of fresh processes run in turn.

    python benchmarks/switchback.py [--rounds 5] [--jobs classifier gpt]

Writes ``results/switchback.csv``: for each job and practice the ratio and range by switching, the median ratio of
``--rounds`` pairs of fresh processes with their smallest and largest, and the seconds that each way took. A fresh pair
runs the job without and with the practice, in turn. On a quiet machine the two should agree within a few per cent.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
import tempfile
import time
from pathlib import Path

from vivace.hardware.machine import this_machine
from vivace.hardware.software import Software
from vivace.measure.command import nowhere, run_command
from vivace.protocol.request import Entry, ProcessRequest
from vivace.protocol.switchback import SEEN, SeenSwitchback, SwitchbackTest
from vivace.tune.trials import TrialSettings, run_trial

RESULTS = Path(__file__).parent / "results" / "switchback.csv"
HERE = Path(__file__).parent
USUAL = ("bf16", "fused_optimizer", "threads=1")
JOBS = {
    "classifier": ([sys.executable, "-m", "vivace.demo.classifier"], (*USUAL, "channels_last")),
    "gpt": ([sys.executable, str(HERE / "lr_jobs" / "gpt.py")], (*USUAL, "attention")),
}


def switched(command: list[str], words: tuple[str, ...], folder: Path) -> tuple[SeenSwitchback, float]:
    """Each word for itself: nothing is kept for the next."""
    arms, began = [], time.monotonic()
    for word in words:
        place = folder / word.replace("=", "-")
        place.mkdir()
        request = ProcessRequest(
            str(place), entry=Entry.SWITCHBACK, measure=False, seed_offset=0, switchback=SwitchbackTest((word,), 60.0)
        )
        run_command(command, request, nowhere, lambda _: None, 600)
        for path in place.glob(SEEN):
            arms += SeenSwitchback.from_text(path.read_text()).arms
    return SeenSwitchback(tuple(arms)), time.monotonic() - began


def fresh(command: list[str], word: str, rounds: int, folder: Path) -> list[float]:
    ratios = []
    settings = TrialSettings(steps=40)
    for number in range(rounds):
        means = []
        for words in ((), (word,)):
            name = f"{word.replace('=', '-')}-{number}-{len(words)}"
            trial = run_trial(command, words, folder / name, settings, nowhere, lambda _: None)
            if trial.measurement is None or trial.measurement.step_ms is None:
                return ratios
            means.append(trial.measurement.step_ms.mean)
        ratios.append(means[0] / means[1])
    return ratios


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--jobs", nargs="+", default=list(JOBS), choices=list(JOBS))
    asked = parser.parse_args()
    rows = []
    hardware = this_machine(Software()).cpu.name
    for job in asked.jobs:
        command, words = JOBS[job]
        with tempfile.TemporaryDirectory() as place:
            seen, switching_s = switched(command, words, Path(place))
            for arm in seen.arms:
                began = time.monotonic()
                ratios = fresh(command, arm.word, asked.rounds, Path(place))
                rows.append(
                    {
                        "job": job,
                        "practice": arm.word,
                        "state": arm.state,
                        "switched": _round(arm.ratio),
                        "switched_low": _round(arm.low),
                        "switched_high": _round(arm.high),
                        "pairs_of_windows": arm.pairs,
                        "switching_s": round(switching_s / len(words), 1),
                        "fresh_median": _round(statistics.median(ratios) if ratios else None),
                        "fresh_low": _round(min(ratios, default=None)),
                        "fresh_high": _round(max(ratios, default=None)),
                        "fresh_s": round(time.monotonic() - began, 1),
                        "hardware": hardware,
                    }
                )
                print(rows[-1], flush=True)
    with RESULTS.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


if __name__ == "__main__":
    main()
