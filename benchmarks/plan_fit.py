"""Fit the planner's GPU- and framework-level constants on the files named in ``data/constants.toml
[fitted]``.

python benchmarks/plan_fit.py FOLDER_OF_TABLES [rounds] [--without FILE]

Coordinate descent on the mean absolute log error, each file counting once whatever its length. Prints the
values; a person puts them in ``vivace/plan/data/constants.toml``. No constant belongs to one file.

``--without FILE`` starts from values that no table was used for (NEUTRAL) and fits on the other files: the
constants as they would be if that file had never been seen. ``benchmarks/data/left_out.toml`` holds them.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

from vivace.plan.facts.constants import constants, override
from vivace.plan.grading.language_rows import Skip, question_from_row, with_file_context
from vivace.plan.grading.measured import measured_seconds
from vivace.plan.grading.tables import read_table
from vivace.plan.jobs.job import TransformerJob
from vivace.plan.time.layer import clear_cache, layer_time
from vivace.plan.time.step import step_time

HERE = Path(__file__).parent
FILES = {"vtrain_single_node_a100.csv": 5, "llmfoundry_mpt.csv": 2, "h200_reference.csv": 1}
KNOBS = [
    "links.intra_latency_us_per_gpu",
    "family.ampere.gemm.16",
    "family.ampere.hbm",
    "family.ampere.flash",
    "family.ampere.flash_backward",
    "family.hopper.gemm.16",
    "gemm.overhead_k",
    "framework.megatron.launch_us",
    "framework.megatron.stream",
    "framework.megatron.tensor_overlap_backward",
    "framework.composer.stream",
    "framework.compiled.stream",
    "links.contention",
    "links.jitter_per_doubling",
]


# Where a fit starts that must not know its file: [family.default], the launches of DeepSpeed, whose layers are those
# of Megatron (another file), round latencies, hardly any overlap and losses.
NEUTRAL = {
    "links.intra_latency_us_per_gpu": 5.0,
    "family.ampere.gemm.16": 0.75,
    "family.ampere.hbm": 0.85,
    "family.ampere.flash": 0.40,
    "family.ampere.flash_backward": 0.32,
    "family.hopper.gemm.16": 0.75,
    "gemm.overhead_k": 100.0,
    "framework.megatron.launch_us": 40.0,
    "framework.megatron.stream": 1.0,
    "framework.megatron.tensor_overlap_backward": 0.1,
    "framework.composer.stream": 1.0,
    "framework.compiled.stream": 1.0,
    "links.contention": 0.1,
    "links.jitter_per_doubling": 0.003,
}


def values_of(knobs: dict[str, float]) -> dict[str, object]:
    found: dict[str, object] = {}
    for path, value in knobs.items():
        if path.endswith("gemm.16"):
            section = path.removesuffix(".gemm.16")
            found[(section + ".gemm").replace(".", "__")] = {
                **constants(section)["gemm"],
                "fp16": value,
                "bf16": value,
            }
        else:
            found[path.replace(".", "__")] = value
    return found


def start() -> dict[str, float]:
    first = {}
    for path in KNOBS:
        section, key = path.rsplit(".", 1)
        first[path] = (
            constants(section.removesuffix(".gemm"))["gemm"]["bf16"] if key == "16" else constants(section)[key]
        )
    return first


def layer_errors(folder: Path) -> list[float]:
    """Korthikanti table 4: one layer of the 22B model, forward and backward in milliseconds."""
    row = with_file_context(read_table(folder / "korthikanti2022_table5_steptime.csv").rows, "Megatron-LM")[0]
    job = question_from_row(row).job
    errors = []
    for line in read_table(folder / "korthikanti2022_table4_layer.csv").rows:
        times = layer_time(_with(job, line["sp"] == "yes")).seconds(line["recompute"])
        errors.append(math.log(times[0] * 1e3 / float(line["forward_ms"])))
        errors.append(math.log(times[1] * 1e3 / float(line["backward_ms"])))
    return errors


def _with(job: TransformerJob, sequence_parallel: bool) -> TransformerJob:
    from dataclasses import replace

    return replace(job, layout=replace(job.layout, sequence_parallel=sequence_parallel))


def file_errors(folder: Path, name: str, every: int) -> list[float]:
    path = folder / name if (folder / name).exists() else HERE / "data" / name
    table = read_table(path)
    errors = []
    for row in with_file_context(table.rows, table.comments)[::every]:
        try:
            job = question_from_row(row).job
        except Skip:
            continue
        measured = measured_seconds(row, job)
        if measured:
            errors.append(math.log(step_time(job).total / measured[0]))
    return errors


def loss(folder: Path, knobs: dict[str, float], without: str = "") -> float:
    clear_cache()
    with override(**values_of(knobs)):
        groups = [file_errors(folder, name, every) for name, every in FILES.items() if name != without]
        groups.append(layer_errors(folder))
    clear_cache()
    # Above ten percent an error counts linearly; the few broken rows of a table must not steer the fit.
    return sum(sum(min(abs(e), 0.25) for e in group) / len(group) for group in groups) / len(groups)


def fit(folder: Path, knobs: dict[str, float], rounds: int, step: float, without: str = "") -> dict[str, float]:
    best = loss(folder, knobs, without)
    print(f"start {best:.4f}", flush=True)
    for _ in range(rounds):
        for path in KNOBS:
            for factor in (1 + step, 1 / (1 + step)):
                trial = {**knobs, path: knobs[path] * factor}
                if "fraction" in path or "overlap" in path or path.startswith("family"):
                    trial[path] = min(trial[path], 0.95)
                score = loss(folder, trial, without)
                if score < best - 1e-5:
                    best, knobs = score, trial
                    break
        print(f"step {step:.3f} loss {best:.4f}", {k: round(v, 4) for k, v in knobs.items()}, flush=True)
        step *= 0.8 if without else 0.6
    return knobs


def main() -> None:
    words = sys.argv[1:]
    without = words.pop(words.index("--without") + 1) if "--without" in words else ""
    words = [word for word in words if word != "--without"]
    folder, rounds = Path(words[0]), int(words[1]) if len(words) > 1 else (14 if without else 3)
    knobs = fit(folder, dict(NEUTRAL) if without else start(), rounds, 0.30 if without else 0.10, without)
    if without:
        print(f'\n["{without}"]')
        for path, value in values_of(knobs).items():
            text = (
                "{ " + ", ".join(f"{k} = {round(v, 4)}" for k, v in value.items()) + " }"
                if isinstance(value, dict)
                else round(float(str(value)), 4)
            )
            print(f"{path} = {text}")


if __name__ == "__main__":
    main()
