"""``vivace chaos`` with every fault on four kinds of jobs: what happens, when it is noticed, what is lost.

    python benchmarks/chaos_faults.py [--only TEXT] [--missing]

Jobs: a plain script that saves with ``torch.save``; the loop of ``vivace train`` on two ranks with checkpoints; and, as
whole commands, ``vivace train``, ``examples/preemptible.py`` under torchrun (DDP, two ranks) and a plain script under
``vivace run --ranks 2``. The first two are forked from a process that has torch in memory. Writes
``results/chaos_faults.csv``, a row for each. Times are those of this machine as it was: see ``load_average``.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

from conftest import environment  # noqa: E402
from forked.here import vivace_here  # noqa: E402

from benchmarks.rows import Table, hardware, say  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "chaos_faults.csv"
FIELDS = (
    "job", "fault", "outcome", "detected_by", "detected_s", "detected_line", "ended_s", "exit_codes", "steps",
    "steps_lost", "steps_lost_from", "restart_said", "straggler_rank", "straggler_ms", "notes", "load_average",
    "hardware", "torch",
)  # fmt: skip
FAULTS = ("kill", "stop", "hang", "worker", "slow", "nan", "disk-full", "bit-rot")
PYTHON = sys.executable
PLAIN = str(ROOT / "tests" / "chaos" / "scripts" / "plain.py")
LOADING = str(ROOT / "tests" / "chaos" / "scripts" / "loading.py")
SIZES = ("data.seq_len=8", "sizes.layers=2", "sizes.hidden=16", "sizes.vocab=32", "log_every=1", "steps=40")
TRAIN = [word for size in (*SIZES, "checkpoints.every_steps=5") for word in ("--set", size)]
JOBS = {
    "plain script": [PYTHON, PLAIN],
    "torchrun, DDP": [
        PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
        str(ROOT / "examples" / "preemptible.py"), "--steps", "40", "--save-steps", "5", "--checkpoint",
        "saved/last.pt",
    ],
    "script with loader workers": [PYTHON, LOADING],
    "loop of vivace train": [PYTHON, str(ROOT / "benchmarks" / "chaos_train.py"), "saved"],
    "loop of vivace train, hung_step_s=10": [PYTHON, str(ROOT / "benchmarks" / "chaos_train.py"), "saved", "10"],
    "torchrun --max-restarts 1, vivace train": [
        PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1", "-m", "vivace",
        "train", "gpt", "--layout", "dp2", "--checkpoints", "saved", *TRAIN,
    ],
    "vivace train": [PYTHON, "-m", "vivace", "train", "gpt", "--layout", "dp2", "--checkpoints", "saved", *TRAIN],
    "vivace run --ranks 2": [
        PYTHON, "-m", "vivace", "run", "--ranks", "2", "--with", "ddp", "--no-prove", "--", PYTHON, PLAIN,
    ],
}  # fmt: skip
ONLY = {
    "script with loader workers": ("worker",),
    "loop of vivace train, hung_step_s=10": ("hang",),
    "torchrun --max-restarts 1, vivace train": ("kill", "nan"),
    "plain script": tuple(fault for fault in FAULTS if fault != "worker"),
    "loop of vivace train": tuple(fault for fault in FAULTS if fault != "worker"),
    "torchrun, DDP": tuple(fault for fault in FAULTS if fault != "worker"),
    "vivace train": ("kill",),
    "vivace run --ranks 2": ("kill",),
}
"""Of the others, a fault says nothing new, or cannot come."""
PATIENCE_S, TIMEOUT_S = 150, 900


def one(job: str, fault: str, table: Table) -> None:
    rank = "0" if "script" in job else "1"
    step = "23" if fault == "bit-rot" else "13"  # so that there is a checkpoint to fall back on
    options = ["--rank", rank, "--step", step, "--seed", "1", "--delay", "1", "--slow-steps", "5"]
    if fault == "disk-full":
        options[1] = "0"  # the first rank saves
    with tempfile.TemporaryDirectory() as folder:
        if fault == "bit-rot":
            Path(folder, "saved").mkdir()
            options += ["--folder", "saved" if "saved" in " ".join(JOBS[job]) else "."]
        words = ["chaos", "--json", "-q", "--fault", fault, *options]
        words += ["--patience", str(PATIENCE_S), "--timeout", str(TIMEOUT_S), "--", *JOBS[job]]
        load = os.getloadavg()[0]
        done = vivace_here(words, Path(folder), environment(KINETO_LOG_LEVEL="99", PYTHONUNBUFFERED="1"))
        if not done.stdout:
            say(done.stderr)
            table.add(job=job, fault=fault, outcome="failed", notes=done.stderr.strip()[-200:])
            return
        record = json.loads(done.stdout)
        record["detected_line"] = _without_places(record["detected_line"] or "", folder)
        straggler = record["straggler"] or {}
        table.add(
            **{name: record[name] for name in FIELDS if name in record and name not in ("job", "notes")},
            job=job,
            exit_codes=" ".join(str(life["exit_code"]) for life in record["lives"]),
            steps=" ".join(str(life["steps"]) for life in record["lives"]),
            restart_said=_without_places(record["lives"][-1]["said"] or "", folder),
            straggler_rank=straggler.get("rank", ""),
            straggler_ms=straggler.get("late_ms", ""),
            notes=" ".join(record["notes"]),
            load_average=load,
        )


def _without_places(line: str, folder: str) -> str:
    return re.sub(r"\(\S+, process \d+\)", "(host, process)", line).replace(folder, "…")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--missing", action="store_true", help="only what the table does not have yet")
    asked = parser.parse_args()
    if not asked.only and not asked.missing:
        RESULTS.unlink(missing_ok=True)
    table, had = Table(RESULTS, FIELDS, hardware("cpu")), set()
    if asked.missing and RESULTS.exists():
        with RESULTS.open() as file:
            had = {(row["job"], row["fault"]) for row in csv.DictReader(file) if row["outcome"] != "failed"}
    for job in JOBS:
        for fault in FAULTS:
            if fault in ONLY.get(job, FAULTS) and asked.only in f"{job} {fault}" and (job, fault) not in had:
                one(job, fault, table)


if __name__ == "__main__":
    main()
