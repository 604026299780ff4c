"""Does `vivace check` find what is wrong, name the place, and price it right? One planted defect for each rule.

    python benchmarks/planted_defects.py --budget 12
    python benchmarks/planted_defects.py --only R6,R11 --rounds 3
    python benchmarks/planted_defects.py --quick --device cpu

Each script of defects/ has a defect, and a switch ``--fixed`` that removes it by hand. `vivace check --json` looks at
both: the practice should be found with the defect and not without. The price is ``likely`` (what removing the defect
should bring, with its range) and ``worth`` (an upper bound); the truth beside it is ``gain``: the time of a step with
the defect over that without it, validation included. The checks' own timed windows are the first round; further rounds
measure both again, in turn. ``gain_low`` and ``gain_high`` are the smallest and the largest ratio of any run with the
defect to any run without it.

``where_is_right``: the line that the finding names is one marked "# the defect" in the script; empty where the defect
has no line of its own (a flag that nobody set). Rules that one GPU cannot show say so in ``note``. R18 to R20 are
advice about containers, method and energy, not defects of a script. Appends to results/planted_defects.csv.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rows import Clock, Table, hardware, say
from sides import Side, run_rounds, vivace_json

from vivace.practices.engine.registry import names
from vivace.records.base import RecordError
from vivace.records.measurement import Measurement

HERE = Path(__file__).parent
FIELDS = (
    "rule", "practice", "found_with_defect", "found_without", "worth", "likely", "likely_low", "likely_high", "gain",
    "gain_low", "gain_high", "where_is_right", "where", "rounds", "step_ms_defect", "step_ms_fixed", "also_found",
    "seconds", "note", "hardware", "torch",
)  # fmt: skip
MARK = "# the defect"
RANKS = 2


@dataclass(frozen=True)
class Defect:
    rule: str
    script: str
    practices: tuple[str, ...]
    """What should be found."""
    needs_gpu: bool = False
    ranks: bool = False
    """Needs several ranks: runs under torchrun, on the CPU."""
    note: str = ""

    @property
    def key(self) -> str:
        return self.script.removesuffix(".py")

    def command(self, args: argparse.Namespace, fixed: bool) -> list[str]:
        device = "cpu" if self.ranks else args.device
        launcher = [sys.executable]
        if self.ranks:
            launcher += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS)]
        flags = ["--device", device, *(["--small"] if args.quick else []), *(["--fixed"] if fixed else [])]
        return [*launcher, str(HERE / "defects" / self.script), *flags]


ON_CPU = "2 ranks on the CPU (gloo): one GPU has no other rank to wait for"
ONE_RANK = "one rank: several would wait for each other too"
ONE_GPU = "one GPU: what DataParallel costs shows from two on"
DEFECTS = (
    Defect("R1", "r01_workers.py", ("workers",)),
    Defect("R1", "r01_pin_memory.py", ("pin_memory",), needs_gpu=True),
    Defect("R2", "r02_no_grad_validation.py", ("no_grad_validation",)),
    Defect("R3", "r03_mixed_precision.py", ("bf16",)),
    Defect("R4", "r04_data_parallel.py", ("ddp_not_dp",), needs_gpu=True, note=ONE_GPU),
    Defect("R5", "r05_bias_before_norm.py", ("bias_before_norm",), needs_gpu=True),
    Defect("R6", "r06_channels_last.py", ("channels_last",)),
    Defect("R7", "r07_debug_left_on.py", ("debug_off",)),
    Defect("R8", "r08_tensors_on_device.py", ("tensors_on_device",), needs_gpu=True),
    Defect("R9", "r09_pointwise.py", ("compile",)),
    Defect("R9", "r09_cells.py", ("recurrent_layers",)),
    Defect("R10", "r10_cudnn_autotune.py", ("cudnn_benchmark",), needs_gpu=True),
    Defect("R11", "r11_syncs.py", ("no_syncs",), needs_gpu=True),
    Defect("R12", "r12_unbalanced_lengths.py", ("length_bucketing",), ranks=True, note=ON_CPU),
    Defect("R12", "r12_own_lengths.py", ("round_lengths", "cudnn_benchmark"), needs_gpu=True),
    Defect("R13", "r13_preallocate.py", ("preallocate",), needs_gpu=True),
    Defect("R14", "r14_ddp_options.py", ("ddp_options",), ranks=True, note=ON_CPU),
    Defect("R14", "r14_no_sync.py", ("ddp_no_sync",), note=ONE_RANK),
    Defect("R15", "r15_odd_sizes.py", ("tensor_core_sizes",), needs_gpu=True),
    Defect("R16", "r16_fragmentation.py", ("expandable_segments",), needs_gpu=True),
    Defect("R17", "r17_tf32.py", ("tf32",), needs_gpu=True),
    Defect("R17", "r17_deterministic.py", ("debug_off",), needs_gpu=True),
)


@dataclass
class Checked:
    """What `vivace check` said of one side, and the step that it measured."""

    findings: list[dict[str, Any]] = field(default_factory=list)
    step_ms: float | None = None

    def find(self, practices: tuple[str, ...]) -> dict[str, Any] | None:
        return next((f for f in self.findings if f["practice"] in practices), None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=("cpu", "cuda"))
    parser.add_argument("--only", help="rules or scripts, separated by commas: R6,r11_syncs")
    parser.add_argument("--budget", type=float, help="minutes for everything")
    parser.add_argument("--rounds", type=int, default=2, help="timed runs of each side, the check's own included")
    parser.add_argument("--steps", type=int, default=40, help="timed steps of each run")
    parser.add_argument("--no-probes", action="store_true", help="check without its differential runs")
    parser.add_argument("--quick", action="store_true", help="small sizes, few steps: does it run?")
    parser.add_argument("--output", type=Path, default=HERE / "results" / "planted_defects.csv")
    parser.add_argument("--runs", type=Path, help="folder for records and logs; default: a temporary one")
    args = parser.parse_args()
    if args.quick:
        args.steps = 10

    clock, table = Clock(args.budget), Table(args.output, FIELDS, hardware(args.device))
    wanted = set(args.only.split(",")) if args.only else None
    with tempfile.TemporaryDirectory() as temporary:
        runs = (args.runs or Path(temporary)).resolve()
        for defect in DEFECTS:
            if wanted is not None and not wanted & {defect.rule, defect.key}:
                continue
            say(f"=== {defect.rule} {defect.key}, {clock.left_s():.0f} s left")
            row = {"rule": defect.rule, "practice": " ".join(defect.practices)}
            if defect.needs_gpu and args.device == "cpu":
                table.add(**row, note="not run: needs a GPU")
                continue
            table.attempt(clock, lambda d=defect: examine(d, args, runs / d.key, table, clock), **row)


def examine(defect: Defect, args: argparse.Namespace, runs: Path, table: Table, clock: Clock) -> None:
    began = clock.elapsed_s()
    with_defect = checked(defect, False, args, runs, clock)
    without = checked(defect, True, args, runs, clock)
    sides = [Side("defect", defect.command(args, False)), Side("fixed", defect.command(args, True))]
    run_rounds(sides, args.rounds - 1, args.steps, runs / "rounds", clock)
    times = [
        [step for step in (first.step_ms, *(step_and_validation_ms(r) for r in side.records)) if step]
        for first, side in zip((with_defect, without), sides, strict=True)
    ]
    found, false_alarm = with_defect.find(defect.practices), without.find(defect.practices)
    ratios = [slow / fast for slow in times[0] for fast in times[1]]
    table.add(
        rule=defect.rule,
        practice=" ".join(defect.practices),
        found_with_defect=found is not None,
        found_without=false_alarm is not None,
        **{name: found[name] if found else None for name in ("worth", "likely", "likely_low", "likely_high")},
        gain=statistics.median(times[0]) / statistics.median(times[1]) if ratios else None,
        gain_low=min(ratios, default=None),
        gain_high=max(ratios, default=None),
        where_is_right=where_is_right(defect, found),
        where=_place(found),
        rounds=min(map(len, times)),
        step_ms_defect=statistics.median(times[0]) if times[0] else None,
        step_ms_fixed=statistics.median(times[1]) if times[1] else None,
        also_found=" ".join(f["practice"] for f in with_defect.findings if f["practice"] not in defect.practices),
        seconds=clock.elapsed_s() - began,
        note="; ".join(text for text in (unknown(defect), defect.note, *(side.failed for side in sides)) if text),
    )


def checked(defect: Defect, fixed: bool, args: argparse.Namespace, runs: Path, clock: Clock) -> Checked:
    side = "fixed" if fixed else "defect"
    arguments = ["check", "--quiet", "--steps", str(args.steps), "--output", str(runs / side)]
    arguments += ["--no-probes"] if args.no_probes else []
    said = vivace_json(arguments, defect.command(args, fixed), clock.timeout_s(240), runs / f"{side}.log")
    if "findings" not in said:
        raise RuntimeError(f"{side}: {said.get('reason', 'nothing measured')}")
    checked = Checked(said["findings"])
    try:
        checked.step_ms = step_and_validation_ms(Measurement.load(Path(said["measurement"])))
    except (RecordError, OSError, TypeError) as error:
        say(f"  no record of the check's own run ({error}): its time does not count")
    say(f"  {side}: {', '.join(f['practice'] for f in checked.findings) or 'nothing found'}")
    return checked


def unknown(defect: Defect) -> str:
    """A practice that this vivace does not have cannot be found: say so, rather than "not found"."""
    missing = [practice for practice in defect.practices if practice not in names()]
    return f"there is no practice {', '.join(missing)}" if missing else ""


def step_and_validation_ms(record: Measurement) -> float | None:
    """A training step with its share of the validation: what R2 costs is not in the step."""
    if record.step_ms is None:
        return None
    return record.step_ms.mean + record.validation.total_ms / max(1, record.steps)


def where_is_right(defect: Defect, found: dict[str, Any] | None) -> bool | str:
    text = (HERE / "defects" / defect.script).read_text().splitlines()
    lines = [number for number, line in enumerate(text, 1) if MARK in line]
    if not lines or found is None:
        return ""
    where = found.get("where")
    return bool(where) and Path(where["file"]).name == defect.script and where["line"] in lines


def _place(found: dict[str, Any] | None) -> str:
    where = (found or {}).get("where")
    return f"{Path(where['file']).name}:{where['line']}" if where else ""


if __name__ == "__main__":
    main()
