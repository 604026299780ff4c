"""Scripts in the usual public style, tuned without an edit: how much faster, and is anything harmed or broken?

    python benchmarks/public_scripts.py --budget 8
    python benchmarks/public_scripts.py --only char_lm,gan --tune-minutes 2
    python benchmarks/public_scripts.py --quick --device cpu

Each example goes through `vivace tune` with a short budget. A row holds the speedup with its interval from the tune's
own paired runs, the verdict on the losses, the practices that were taken, and what broke, if something did: trials
that crashed or ran out of memory are counted in ``trials_failed``. Appends to results/public_scripts.csv.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rows import Clock, Table, hardware, say
from sides import EXAMPLES, vivace_json

HERE = Path(__file__).parent
_SPARE_MINUTES, _SHORTEST_MINUTES = 0.75, 0.5
FIELDS = (
    "script", "speedup", "speedup_low", "speedup_high", "losses", "losses_moved", "losses_band", "practices",
    "samples_per_s_before", "samples_per_s_after", "memory_gib_before", "memory_gib_after", "trials", "trials_failed",
    "failures", "proposed", "seconds", "note", "hardware", "torch",
)  # fmt: skip


@dataclass(frozen=True)
class Script:
    name: str
    gpu: tuple[str, ...]
    """Flags on a GPU: sizes that a person would train."""
    quick: tuple[str, ...]
    needs: tuple[str, ...] = ()
    """Modules, one of which must be there."""
    ranks: bool = False

    def command(self, quick: bool, device: str) -> list[str]:
        launcher = [sys.executable]
        if self.ranks:
            ranks = "2" if device == "cpu" else "gpu"
            launcher += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", ranks]
        return [*launcher, str(EXAMPLES / f"{self.name}.py"), *(self.quick if quick else self.gpu)]


SCRIPTS = (
    Script(
        "image_classifier",
        ("-a", "resnet50", "-b", "128", "-j", "4"),
        ("-a", "resnet18", "-b", "8", "--image-size", "32", "-j", "0", "--images", "800"),
    ),
    Script(
        "char_lm",
        ("--hidden", "1024", "-b", "128", "--bptt", "128", "--characters", "8000000"),
        ("--hidden", "32", "-b", "8", "--bptt", "16", "--characters", "60000"),
    ),
    Script(
        "gan",
        ("-b", "256"),
        ("-b", "8", "--image-size", "16", "--features", "8", "--images", "800", "--workers", "0"),
    ),
    Script(
        "lightning_module",
        ("--batch-size", "512", "--width", "128"),
        ("--batch-size", "8", "--width", "8", "--image-size", "16", "--images", "800"),
        needs=("lightning", "pytorch_lightning"),
    ),
    Script(
        "transformers_trainer",
        ("--layers", "12", "--width", "768", "--heads", "12", "--length", "512", "-b", "32"),
        ("--layers", "2", "--width", "32", "--heads", "2", "--length", "32", "-b", "4", "--max-steps", "400"),
        needs=("transformers",),
    ),
    Script("ddp", ("--width", "2048", "-b", "1024"), ("--width", "32", "--blocks", "1", "-b", "16"), ranks=True),
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=("cpu", "cuda"))
    parser.add_argument("--only", help="names of scripts, separated by commas")
    parser.add_argument("--budget", type=float, help="minutes for everything")
    parser.add_argument("--tune-minutes", type=float, default=2.0, help="minutes for each tune")
    parser.add_argument("--tune-rounds", type=int, default=2, help="paired runs that each tune's proof rests on")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, short tunes: does it run?")
    parser.add_argument("--output", type=Path, default=HERE / "results" / "public_scripts.csv")
    parser.add_argument("--runs", type=Path, help="folder for trials and logs; default: a temporary one")
    args = parser.parse_args()
    if args.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # the scripts take a GPU where there is one

    clock, table = Clock(args.budget), Table(args.output, FIELDS, hardware(args.device))
    with tempfile.TemporaryDirectory() as temporary:
        runs = (args.runs or Path(temporary)).resolve()
        for script in SCRIPTS:
            if args.only and script.name not in args.only.split(","):
                continue
            say(f"=== {script.name}, {clock.left_s():.0f} s left")
            if script.needs and not any(importlib.util.find_spec(module) for module in script.needs):
                table.add(script=script.name, note=f"not run: {script.needs[0]} is not installed")
                continue
            table.attempt(clock, lambda s=script: tune(s, args, runs / s.name, table, clock), script=script.name)


def tune(script: Script, args: argparse.Namespace, runs: Path, table: Table, clock: Clock) -> None:
    # A proof may take somewhat longer than the budget; a tune that the clock ends has none.
    minutes = min(args.tune_minutes, clock.left_s() / 60 - _SPARE_MINUTES)
    if minutes < _SHORTEST_MINUTES:
        table.add(script=script.name, note="not run: too little time was left")
        return
    command = script.command(args.quick, args.device)
    arguments = ["tune", "--budget", f"{minutes:.2f}", "--rounds", str(args.tune_rounds), "--output", str(runs)]
    arguments += ["--steps", "8"] if args.quick else []
    proof = vivace_json(arguments, command, clock.timeout_s(60 * minutes + 120), runs / "tune.log")
    table.add(script=script.name, **columns(proof), **failures(proof, runs))


def columns(proof: dict[str, Any]) -> dict[str, Any]:
    harm, before, after = (proof.get(name) or {} for name in ("harm", "before", "after"))
    return {
        "speedup": proof["speedup"]["median"],
        "speedup_low": proof["speedup"]["low"],
        "speedup_high": proof["speedup"]["high"],
        "losses": harm.get("verdict"),
        "losses_moved": harm.get("moved"),
        "losses_band": harm.get("band"),
        "practices": " ".join(gain["practice"] for gain in proof["practices"]),
        "samples_per_s_before": before.get("samples_per_s"),
        "samples_per_s_after": after.get("samples_per_s"),
        "memory_gib_before": before.get("device_memory_gib"),
        "memory_gib_after": after.get("device_memory_gib"),
        "trials": len(proof["trials"]),
        "proposed": " ".join(finding["practice"] for finding in proof.get("proposed", ())),
        "seconds": proof.get("seconds"),
    }


def failures(proof: dict[str, Any], runs: Path) -> dict[str, Any]:
    """Trials that did not end well, from their own records: tune goes on without them, a reader should know."""
    broken = []
    for path in sorted(runs.rglob("trial.json")):
        trial = json.loads(path.read_text())
        if trial["outcome"] != "ok":
            broken.append(f"{'+'.join(trial['practices']) or 'baseline'}: {trial['outcome']}")
    return {"trials_failed": len(broken), "failures": "; ".join(broken[:5])}


if __name__ == "__main__":
    main()
