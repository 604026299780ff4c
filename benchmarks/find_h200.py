"""What `vivace find batch` and `vivace find loader` answer on a GPU, with every setting that they ran.

    python benchmarks/find_h200.py --budget 6
    python benchmarks/find_h200.py --quick --device cpu

Batch: `examples/gpt.py` of 124 million parameters in fp32, up to a size that does not fit. Loader: `examples/dlojz.py`
with two workers. Each setting is a fresh process. Appends to results/find_h200.csv; the row ``answer`` is the finder's.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

from rows import Clock, Table, hardware, say
from sides import EXAMPLES, vivace_json

HERE = Path(__file__).parent
FIELDS = (
    "finder", "script", "setting", "outcome", "samples_per_s", "memory_gib", "left_gib", "loader_ms", "seconds", "note",
    "hardware", "torch",
)  # fmt: skip

GPT = {
    "cuda": (
        "--layers", "12", "--width", "768", "--heads", "12", "--length", "1024", "-b", "8", "--vocab-size", "50304",
        "--steps", "100000", "--eval-interval", "100000",
    ),
    "cpu": ("--layers", "2", "--width", "32", "--heads", "2", "--length", "32", "-b", "4", "--device", "cpu"),
}  # fmt: skip
DLOJZ = {
    "cuda": ("--model", "resnet50", "-b", "256", "--num-workers", "2", "--device", "cuda"),
    "cpu": ("--model", "resnet18", "-b", "8", "--image-size", "32", "--num-workers", "0", "--dataset-size", "4000",
            "--device", "cpu"),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=("cpu", "cuda"))
    parser.add_argument("--budget", type=float, help="minutes for everything")
    parser.add_argument("--quick", action="store_true", help="few steps: does it run?")
    parser.add_argument("--only", choices=("batch", "loader"))
    parser.add_argument("--output", type=Path, default=HERE / "results" / "find_h200.csv")
    parser.add_argument("--runs", type=Path, help="folder for trials and logs; default: a temporary one")
    args = parser.parse_args()

    clock, table = Clock(args.budget), Table(args.output, FIELDS, hardware(args.device))
    sizes = "8,16" if args.device == "cpu" else "16,32,64,256"
    batch = ["batch", "--flag", "-b", "--values", sizes]
    with tempfile.TemporaryDirectory() as temporary:
        runs = (args.runs or Path(temporary)).resolve()
        for finder, words, script, flags in (
            ("batch", batch, "gpt.py", GPT),
            ("loader", ["loader"], "dlojz.py", DLOJZ),
        ):
            if args.only in (None, finder):
                command = [sys.executable, str(EXAMPLES / script), *flags[args.device]]
                say(f"=== find {finder}, {clock.left_s():.0f} s left")
                row = {"finder": finder, "script": script}
                table.attempt(clock, lambda w=words, c=command, r=row: find(w, c, r, args, runs, clock, table), **row)


def find(
    words: list[str], command: list[str], row: dict[str, str], args: argparse.Namespace, runs: Path, clock: Clock,
    table: Table,
) -> None:  # fmt: skip
    began = clock.elapsed_s()
    minutes = 5.0 if args.budget is None else clock.left_s() / 60
    arguments = ["find", *words, "--steps", "5" if args.quick else "20", "--budget", f"{minutes:.2f}"]
    arguments += ["--output", str(runs / row["finder"])]
    record = vivace_json(arguments, command, clock.timeout_s(60 * minutes + 120), runs / f"{row['finder']}.log")
    for one in record["tried"]:
        table.add(**row, **(_size(one) if row["finder"] == "batch" else _workers(one)), outcome=one["outcome"])
    table.add(**row, setting="answer", seconds=clock.elapsed_s() - began, note=_answer(record, row["finder"]))


def _size(one: dict[str, Any]) -> dict[str, Any]:
    return {
        "setting": f"-b {one['size']}", "samples_per_s": one["samples_per_s"], "memory_gib": one["memory_gib"],
        "left_gib": one["margin_gib"],
    }  # fmt: skip


def _workers(one: dict[str, Any]) -> dict[str, Any]:
    return {
        "setting": ",".join(one["words"]) or f"own: {one['workers']} workers", "samples_per_s": one["samples_per_s"],
        "memory_gib": one["workers_memory_gib"], "loader_ms": one["loader_ms"],
    }  # fmt: skip


def _answer(record: dict[str, Any], finder: str) -> str:
    if finder == "batch":
        answer = f"knee {record['knee']}, largest {record['largest']}, first too large {record['first_too_large']}"
    else:
        answer = f"{','.join(record['words']) or 'the own setting'}, speedup {record['speedup']}"
    return f"{answer}; {record['ended']}"


if __name__ == "__main__":
    main()
