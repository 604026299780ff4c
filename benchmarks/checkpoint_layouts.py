"""``vivace train`` killed at random moments, and moved from layout to layout: how far are its losses from those of one
undisturbed process?

    python benchmarks/checkpoint_layouts.py [--kills 12] [--seed 1] [--part kills|layouts]

A small GPT in fp64, up to four gloo ranks, all forked from this process, saving every 2 steps in the background. First
kills on one layout (the losses must be the same, bit for bit), then a chain of layouts, each told to stop by SIGTERM
(the losses may differ by rounding). Writes ``results/checkpoint_layouts.csv``, a row for each start.
"""

from __future__ import annotations

import argparse
import csv
import os
import random
import signal
import sys
import tempfile
import threading
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

import torch.distributed as dist  # noqa: E402

from benchmarks.forked_ranks import RanksFailed, on_ranks  # noqa: E402
from benchmarks.rows import Table, hardware  # noqa: E402
from vivace.checkpoint.scan import scan  # noqa: E402
from vivace.records.layout import parse_layout  # noqa: E402
from vivace.train import loop  # noqa: E402
from vivace.train.saving import TrainCheckpoints  # noqa: E402
from vivace.train.settings import TrainSettings, with_changes  # noqa: E402
from vivace.train.training import Training  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "checkpoint_layouts.csv"
FIELDS = (
    "part", "start", "layout", "ranks", "fault", "first_step", "last_step", "resumed_from", "largest_difference",
    "identical", "hardware", "torch",
)  # fmt: skip
STEPS = 40
SMALL = (
    "data.seq_len=8", "sizes.layers=2", "sizes.hidden=16", "sizes.vocab=32", "log_every=1", f"steps={STEPS}",
    "engine.precision=fp64", "checkpoints.every_steps=2", "optim.lr=0.01",
)  # fmt: skip
CHAIN = ("fs4,mb2", "dp2,tp2,mb4", "tp2,mb8", "pp2,mb2", "fs2,tp2,mb4", "dp2,pp2,mb2", "fs2,mb4", "dp1,mb8")


def start(layout: str, folder: Path, blow: int | None, at: int = 0, after_s: float | None = None) -> bool:
    """True when it ended well. ``blow``: a signal to one rank, before step ``at``; with ``after_s``: so many seconds
    after the step ``at`` of this start began, whatever the rank is doing then."""
    where = f"checkpoints.folder={folder / 'checkpoints'}"
    settings = with_changes(TrainSettings(layout=parse_layout(layout)), (*SMALL, where))
    folder.mkdir(parents=True, exist_ok=True)
    victim = settings.layout.gpus - 1

    def work() -> None:
        take = Training.take_step

        taken = 0

        def struck(training: Training):
            nonlocal taken
            due = taken if after_s is not None else training.step
            taken += 1
            if blow is not None and due == at and dist.get_rank() == victim:
                timer = threading.Timer(after_s or 0.0, os.kill, (os.getpid(), blow))
                timer.daemon = True
                timer.start()
                if after_s is None:
                    timer.join()
            return take(training)

        Training.take_step = struck  # type: ignore[method-assign]
        loop.train(settings, folder if dist.get_rank() == 0 else None, TrainCheckpoints(settings))

    try:
        on_ranks(settings.layout.gpus, work)
    except RanksFailed:
        return False
    return True


def rows(folder: Path) -> list[tuple[int, str]]:
    """(step, loss) in the order of their writing; a line that a kill tore is left out."""
    path = folder / "metrics.csv"
    if not path.exists():
        return []
    with path.open() as file:
        return [(int(row[0]), row[1]) for row in csv.reader(file) if len(row) == 7 and row[0] != "step"]


def kills(table: Table, count: int, seed: int, folder: Path) -> None:
    dice, layout = random.Random(seed), "dp2,mb4"
    assert start(layout, folder / "whole", None)
    expected = dict(rows(folder / "whole"))
    killed, number, done = folder / "killed", 0, False
    while not done:
        before, saved = len(rows(killed)), scan(killed / "checkpoints").marked
        after_s, at = dice.uniform(0.0, 0.3), dice.randrange(0, 8)
        done = start(layout, killed, signal.SIGKILL if number < count else None, at, after_s)
        made = rows(killed)[before:]
        table.add(
            part="kills",
            start=number,
            layout=layout,
            ranks=2,
            fault="" if done else f"SIGKILL {1000 * after_s:.0f} ms after its step {at + 1} began",
            first_step=made[0][0] if made else "",
            last_step=made[-1][0] if made else "",
            resumed_from=saved[0].step if saved else 0,
            identical=all(expected[step] == loss for step, loss in made),
        )
        number += 1
    assert sorted({step for step, _ in rows(killed)}) == list(range(1, STEPS + 1))


def chain(table: Table, folder: Path) -> None:
    assert start("dp1,mb8", folder / "alone", None)
    expected = {step: float(loss) for step, loss in rows(folder / "alone")}
    moved = folder / "moved"
    for number, layout in enumerate(CHAIN):
        before, saved = len(rows(moved)), scan(moved / "checkpoints").marked
        last = number == len(CHAIN) - 1
        assert start(layout, moved, None if last else signal.SIGTERM, at=4 * (number + 1))
        made = rows(moved)[before:]
        table.add(
            part="layouts",
            start=number,
            layout=layout,
            ranks=parse_layout(layout).gpus,
            fault="" if last else "SIGTERM",
            first_step=made[0][0],
            last_step=made[-1][0],
            resumed_from=saved[0].step if saved else 0,
            largest_difference=max(abs(float(loss) / expected[step] - 1) for step, loss in made),
        )
    assert sorted({step for step, _ in rows(moved)}) == list(range(1, STEPS + 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--part", choices=["kills", "layouts"], help="only this one, added to the table")
    asked = parser.parse_args()
    if asked.part is None:
        RESULTS.unlink(missing_ok=True)
    table = Table(RESULTS, FIELDS, hardware("cpu"))
    with tempfile.TemporaryDirectory() as folder:
        if asked.part != "layouts":
            kills(table, asked.kills, asked.seed, Path(folder, "kills"))
        if asked.part != "kills":
            chain(table, Path(folder, "layouts"))


if __name__ == "__main__":
    main()
