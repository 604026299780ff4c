"""Measure the jobs of `price_jobs.py` as `vivace check` does, and time both sides of every pair.

    python benchmarks/price_trials.py --device cuda --budget 6 --output folder
    python benchmarks/price_trials.py --device cpu --only mlp,gpt_small --output folder

Three parts. Compiled variants are compiled once, several at a time, so that their code is cached. Then one process
times all variants of a job in turn, three rounds (``price_gains.csv``). Then every variant that has a finding is
measured by vivace in a fresh process, with its evidence (``price_measurements.jsonl``: what prices are computed from).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rows import Clock, Table, hardware, say

HERE = Path(__file__).parent
ROOT = HERE.parent
RESULTS = HERE / "results"
FIELDS = (
    "job", "practice", "before", "after", "gain", "gain_low", "gain_high", "before_ms", "after_ms", "rounds",
    "hardware", "torch",
)  # fmt: skip
ROUND_S = {"cuda": 0.2, "cpu": 0.5}
ROUNDS = 3
STEPS = 20
IN_FLIGHT = 3
UNUSED = ("series_ms", "losses", "trajectory", "gradient_norms", "ranks", "notes")
KEPT_SERIES = ("loader",)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=("cpu", "cuda"))
    parser.add_argument("--only", help="jobs, separated by commas")
    parser.add_argument("--budget", type=float, help="minutes for everything")
    parser.add_argument("--output", type=Path, required=True, help="folder for the two tables")
    parser.add_argument("--no-compile", action="store_true", help="leave out what has to be compiled")
    parser.add_argument("--missing", action="store_true", help="measure only what results/ has no measurement of")
    parser.add_argument("--part", choices=("compile", "gains", "measure"), help="one part only")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str((args.output / "inductor").resolve()))
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    clock = Clock(args.budget)
    if args.device == "cpu":
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # what threads wait for each other is not what is timed
    if args.part in (None, "compile") and args.device == "cuda":
        compile_all(args, clock)
    if args.part == "gains":
        gains(args, clock)
    elif args.part is None:
        for job in dict.fromkeys(pair.job for pair in wanted(args)):
            gains_of(job, args, clock)
    if args.part in (None, "measure"):
        measure_all(args, clock)


def gains_of(job: str, args: argparse.Namespace, clock: Clock) -> None:
    """In a process of its own: what one job leaves behind must not slow the next one down."""
    command = [sys.executable, __file__, "--device", args.device, "--output", str(args.output), "--part", "gains"]
    command += ["--only", job, *(["--no-compile"] if args.no_compile else [])]
    try:
        subprocess.run(command, timeout=clock.timeout_s(120), check=False)
    except subprocess.TimeoutExpired:
        say(f"{job}: not all gains were timed")


def wanted(args: argparse.Namespace) -> list[Any]:
    from price_jobs import PAIRS

    jobs = set(args.only.split(",")) if args.only else None
    pairs = [pair for pair in PAIRS if jobs is None or pair.job in jobs]
    return [pair for pair in pairs if not (pair.compiles and args.no_compile)]


def compile_all(args: argparse.Namespace, clock: Clock) -> None:
    compiled = {(pair.job, pair.after) for pair in wanted(args) if pair.compiles}
    environment = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "2"}

    def one(variant: tuple[str, str]) -> None:
        job, words = variant
        command = [sys.executable, str(HERE / "price_jobs.py"), "--job", job, "--words", words, "--steps", "3"]
        done = subprocess.run(
            [*command, "--device", args.device], env=environment, capture_output=True, timeout=clock.timeout_s(80)
        )
        say(f"compiled {job} {words}: {done.returncode} {done.stderr.decode()[-300:] if done.returncode else ''}")

    with ThreadPoolExecutor(8) as pool:
        for result in [pool.submit(one, variant) for variant in sorted(compiled)]:
            try:
                result.result()
            except subprocess.TimeoutExpired as error:
                say(f"not compiled in time: {error.cmd[-6:]}")


def gains(args: argparse.Namespace, clock: Clock) -> None:
    pairs = wanted(args)
    table = Table(args.output / "price_gains.csv", FIELDS, hardware(args.device))
    for job in dict.fromkeys(pair.job for pair in pairs):
        mine = [pair for pair in pairs if pair.job == job]
        began = time.monotonic()
        times = time_variants(job, list(dict.fromkeys(w for pair in mine for w in (pair.before, pair.after))), args)
        for pair in mine:
            before, after = times.get(pair.before), times.get(pair.after)
            if not before or not after:
                continue
            ratios = [slow / fast for slow, fast in zip(before, after, strict=True)]
            table.add(
                job=job, practice=pair.practice, before=pair.before, after=pair.after,
                gain=statistics.median(before) / statistics.median(after), gain_low=min(ratios),
                gain_high=max(ratios), before_ms=statistics.median(before), after_ms=statistics.median(after),
                rounds=len(ratios),
            )  # fmt: skip
        say(f"{job}: {time.monotonic() - began:.0f} s")


def time_variants(job: str, variants: list[str], args: argparse.Namespace) -> dict[str, list[float]]:
    """Milliseconds a step of each, round by round in turn: what drifts on the machine meets all of them alike."""
    from price_jobs import build, switch

    steps, counts, times = {}, {}, {}
    for words in variants:
        switch(frozenset(words.split("+")))
        try:
            step = build(job, words, args.device)
            for _ in range(4):
                step()
            spent_ms = timed(step, 3, args.device)
        except Exception as error:  # one variant must not take the others with it
            say(f"{job} {words}: {type(error).__name__}: {str(error)[:200]}")
            continue
        steps[words], counts[words] = step, max(5, int(ROUND_S[args.device] * 1e3 / spent_ms))
        times[words] = []
    for _ in range(ROUNDS):
        for words, step in steps.items():
            switch(frozenset(words.split("+")))
            timed(step, 2, args.device)
            times[words].append(timed(step, counts[words], args.device))
    return times


def timed(step: Any, count: int, device: str) -> float:
    import torch

    if device == "cuda":
        torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(count):
        step()
    if device == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - began) * 1e3 / count


def measure_all(args: argparse.Namespace, clock: Clock) -> None:
    known = {(kept["job"], kept["words"]) for kept in map(json.loads, _lines(RESULTS / "price_measurements.jsonl"))}
    variants = dict.fromkeys((pair.job, pair.before) for pair in wanted(args))
    if args.missing:
        variants = {variant: None for variant in variants if variant not in known}
    records = args.output / "price_measurements.jsonl"
    environment = {**os.environ, "PRICE_GATE": str((args.output / "gate").resolve())}

    def one(variant: tuple[str, str]) -> None:
        job, words = variant
        folder = args.output / "runs" / f"{job}-{words or 'plain'}"
        command = [sys.executable, "-m", "vivace", "measure", "--quiet", "--json", "--steps", str(STEPS)]
        command += ["--output", str(folder), "--", sys.executable, str(HERE / "price_jobs.py"), "--job", job]
        command += ["--words", words, "--device", args.device]
        if clock.left_s() < 10:
            say(f"not measured, the time is over: {job} {words}")
            return
        done = subprocess.run(
            command, env=environment, capture_output=True, timeout=clock.timeout_s(90), cwd=ROOT, text=True
        )
        try:
            record = json.loads(done.stdout)
        except ValueError:
            say(f"not measured: {job} {words}: {done.stderr[-300:]}")
            return
        with records.open("a") as file:
            file.write(json.dumps({"job": job, "words": words, "measurement": compact(record)}) + "\n")
        say(f"measured {job} {words}: {record['step_ms']['mean']:.2f} ms, {clock.elapsed_s():.0f} s")

    with ThreadPoolExecutor(IN_FLIGHT if args.device == "cuda" else 1) as pool:
        for result in [pool.submit(one, variant) for variant in variants]:
            try:
                result.result()
            except subprocess.TimeoutExpired as error:
                say(f"not measured in time: {error.cmd[-5:]}")


def compact(record: dict[str, Any]) -> dict[str, Any]:
    """Without what no price is computed from."""
    kept = {name: value for name, value in record.items() if name not in UNUSED}
    kept["series_ms"] = {name: record["series_ms"][name] for name in KEPT_SERIES if name in record["series_ms"]}
    kept["energy"] = {"measured": False, "how": "not kept"}
    kept["origin"] = {**record["origin"], "command": [], "folder": "", "environment": {}}
    gpus = [{**gpu, "uuid": None} for gpu in record["machine"]["gpus"]]
    kept["machine"] = {**record["machine"], "hostname": "", "os": "", "missing": [], "gpus": gpus}
    if kept.get("profile"):
        kept["profile"] = {**kept["profile"], "top": [_short(kernel) for kernel in kept["profile"]["top"]]}
    text = json.dumps(kept).replace(str(ROOT) + "/", "")
    return json.loads(text, parse_float=lambda text: float(f"{float(text):.5g}"))


def _short(kernel: dict[str, Any]) -> dict[str, Any]:
    return {**kernel, "name": kernel["name"][:60]}


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.is_file() else []


if __name__ == "__main__":
    main()
