"""Delays of known size on known lines: does the ledger charge them there, and nothing to innocent lines?

    python benchmarks/ledger_planted.py --repeats 3

Each job (ledger_jobs/planted.py) has one delay and takes clock marks of it. The truth is the mean of those marks over
the steps that were sampled, which are the last ones of the run. On both sides the time in which the thread could have
run and had no core is left out: it is on no line. ``found_ms`` is what was charged to the planted line (to the lines
that may have spent it, where operators make that ambiguous), ``innocent_ms`` what was charged to the lines around it.
``within``: by 10 % or 0.5 ms. Appends to results/ledger_planted.csv.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from pathlib import Path
from unittest.mock import patch

from rows import Table, hardware, say

from vivace.measure import measuring
from vivace.measure.command import nowhere
from vivace.measure.measuring import Request, measure
from vivace.protocol.payload import Payload
from vivace.records.ledger import Cause
from vivace.records.measurement import Measurement

HERE = Path(__file__).parent
JOB = HERE / "ledger_jobs" / "planted.py"
PLANTS = (
    "sleep", "busy", "numpy", "holds_gil", "library", "collect", "allocation", "lock", "in_list", "operator", "cycles",
    "transform", "slow_rank", "none",
)  # fmt: skip
FIELDS = (
    "plant", "truth_ms", "found_ms", "error_ms", "error_share", "within", "as_a_range", "innocent_ms", "timed_step_ms",
    "rows_over_step", "explained", "samples", "sampling_share", "load", "note", "python", "torch", "hardware",
)  # fmt: skip


def run(plant: str, folder: Path) -> tuple[Measurement, Payload, list[float]]:
    marks = folder / "marks.json"
    command = [sys.executable, str(JOB), "--plant", plant, "--marks", str(marks)]
    if plant == "slow_rank":
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        command = [*launcher, *command[1:]]
    seen: list[Payload] = []
    read = measuring._answers_of_the_processes

    def also_kept(place: Path) -> object:
        answers = read(place)
        seen.extend(answers[0])
        return answers

    request = Request(command=tuple(command), steps=20, lines=True, output=folder, environment={"OMP_NUM_THREADS": "1"})
    with patch.object(measuring, "_answers_of_the_processes", also_kept):
        measured = measure(request, nowhere, lambda _: None)
    assert measured.measurement is not None, measured.message
    return measured.measurement, seen[0], json.loads(marks.read_text())


def planted_line(plant: str) -> int:
    lines = JOB.read_text().splitlines()
    return next((n for n, line in enumerate(lines, start=1) if line.endswith(f"# planted: {plant}")), 0)


def innocent_lines() -> set[int]:
    lines = JOB.read_text().splitlines()
    return {n for n, line in enumerate(lines, start=1) if "innocent = " in line or "before = now" in line}


def row(plant: str, folder: Path) -> dict[str, object]:
    record, payload, marks = run(plant, folder)
    seen, ledger = payload.sampling, record.ledger
    assert seen is not None
    assert ledger is not None
    own = [line for line in seen.lines if line.file == str(JOB)]
    where = planted_line(plant)
    sampled = marks[: len(marks) - seen.traced_steps][-seen.steps :] if plant != "transform" else marks
    truth = sum(sampled) / len(sampled)
    ranged = [line for line in own if line.first_line <= where <= line.line]
    if plant == "transform":
        assert seen.workers is not None
        ranged = [line for line in seen.workers.lines if line.line == where]
    found = sum(line.ms - line.no_core_ms for line in ranged)
    if plant == "cycles":
        found = seen.gc_ms
    elif plant == "slow_rank":  # the mean of two ranks, of which one waits
        found, truth = ledger.of(Cause.RANKS), 8.0 / 2
    elif plant == "none":
        truth = 0.0
    error = found - truth
    innocent = [line for line in own if line.line in innocent_lines() and line not in ranged]
    return {
        "plant": plant, "truth_ms": truth, "found_ms": found, "error_ms": error,
        "error_share": error / truth if truth else 0.0, "within": abs(error) <= max(0.5, 0.1 * truth),
        "as_a_range": any(line.first_line < line.line for line in ranged),
        "innocent_ms": sum(line.ms - line.no_core_ms for line in innocent),
        "timed_step_ms": ledger.step_ms,
        "rows_over_step": (sum(one.ms for one in ledger.rows) + ledger.unexplained_ms) / ledger.step_ms,
        "explained": ledger.explained, "samples": seen.samples, "sampling_share": seen.own_ms / seen.step_ms,
        "load": os.getloadavg()[0],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plants", nargs="*", default=PLANTS)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--output", type=Path, default=HERE / "results" / "ledger_planted.csv")
    args = parser.parse_args()
    table = Table(args.output, FIELDS, {"python": platform.python_version(), **hardware("cpu")})
    for _ in range(args.repeats):
        for plant in args.plants:
            say(plant)
            with tempfile.TemporaryDirectory() as folder:
                try:
                    table.add(**row(plant, Path(folder)))
                except (AssertionError, OSError, ValueError) as error:
                    table.add(plant=plant, note=f"failed: {error}")


if __name__ == "__main__":
    main()
