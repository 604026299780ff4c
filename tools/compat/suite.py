"""What is tried with each environment: real trainings, started by vivace from another environment."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.compat.environments import Cell, clean_environment, run_checked
from tools.compat.untouched import changes, digests

__all__ = ["STEPS", "Row", "try_all"]

SCRIPTS = Path(__file__).parent / "scripts"
EXIT_SAVED = 85  # vivace.preemption: "I saved; start me again"
_STEP_S = 600.0
_ATTEMPTS = 3  # of a script without vivace: on a busy machine ranks may not find each other in time
_WARNED_AT = 7
# Every practice that can be applied from outside, in as few runs as their exclusions allow.
_ALONE = (
    "affinity,attention,batch_memory,channels_last,checkpointing=1,cudnn_benchmark,debug_off,expandable_segments,"
    "fused_optimizer,gpu_prefetch,metric_checks,non_blocking,onednn,persistent_workers,pin_memory,preallocate=1,"
    "prefetch=4,tf32,workers=1",
    "bf16,compile,foreach_optimizer,threads=1",
    "fp16",
    "pure_bf16,fp8",
)
_RANKS = "ddp_no_sync,ddp_not_dp,ddp_options=views"


@dataclass(frozen=True)
class Row:
    """One thing that was tried. ``outcome``: ok, fault, or what became of a practice."""

    torch: str
    python: str
    step: str
    outcome: str
    detail: str = ""


class Fault(Exception):
    """It did not do what it should; the text says what it did."""


@dataclass(frozen=True)
class Bench:
    """vivace's command, the Python that trains, and an empty folder to work in."""

    vivace: Path
    python: Path
    folder: Path
    cell: Cell

    def run(self, *words: str, code: int = 0, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [str(self.vivace), *words],
            cwd=cwd or self.folder,
            env={**clean_environment(), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=_STEP_S,
        )
        if done.returncode != code:
            raise Fault(f"vivace {words[0]} ended with {done.returncode}: {_last_line(done.stderr)}")
        return done

    def train(self, script: str, *words: str) -> list[str]:
        return ["--", str(self.python), str(SCRIPTS / script), *words]

    def ranks(self, script: str) -> list[str]:
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        return ["--", str(self.python), *launcher, str(SCRIPTS / script)]


def names(bench: Bench) -> Iterator[tuple[str, str, str]]:
    """Code that no step below reaches, for GPUs, can at least be read for what this torch does not have."""
    (package,) = bench.vivace.parent.parent.glob("lib/python*/site-packages/vivace")
    words = [str(bench.python), "-B", str(SCRIPTS / "names.py"), str(package)]  # -B: what it imports stays uncompiled
    count, *missing = run_checked(words).split("\n")
    if found := [line for line in missing if line]:
        raise Fault(f"this torch has no {'; '.join(found)}")
    yield "names of torch", "ok", f"has all {count} that vivace uses, or vivace asks first"


def measure(bench: Bench) -> Iterator[tuple[str, str, str]]:
    record = json.loads(bench.run("measure", "--json", "--steps", "20", *bench.train("train.py")).stdout)
    _expect(record, status="complete", steps=20, batch_size=8)
    if not (record["losses"] and all(record["losses"]) and record["flops"]["model"] > 0):
        raise Fault("losses or FLOPs are missing")
    if not record["origin"]["torch"].startswith(bench.cell.torch):
        raise Fault(f"the record says torch {record['origin']['torch']}")
    compiled = json.loads(bench.run("measure", "--json", "--steps", "10", *bench.train("train.py", "--compile")).stdout)
    _expect(compiled, status="complete", steps=10)
    yield "measure", "ok", f"{record['steps']} steps, {len(record['phases_ms'])} phases, losses, FLOPs"


def check(bench: Bench) -> Iterator[tuple[str, str, str]]:
    record = json.loads(bench.run("check", "--json", "--steps", "15", *bench.train("train.py")).stdout)
    if record["incomplete"]:
        raise Fault(record["incomplete"])
    found = ", ".join(finding["practice"] for finding in record["findings"])
    yield "check", "ok", f"found {found}" if found else "found nothing"


def tune(bench: Bench) -> Iterator[tuple[str, str, str]]:
    words = ["--budget", "2", "--steps", "10", "--harm-steps", "20"]
    record = json.loads(bench.run("tune", "--json", *words, *bench.train("train.py", "--epochs", "3")).stdout)
    tried = [*record["practices"], *record["rejected"]]
    failed = [one["practice"] for one in record["rejected"] if one["outcome"] == "crash"]
    if failed or not tried:
        raise Fault(f"trials crashed: {', '.join(failed)}" if failed else "nothing was tried")
    yield "tune", "ok", f"{len(tried)} practices tried"


def practices(bench: Bench) -> Iterator[tuple[str, str, str]]:
    for words in _ALONE:
        yield from _applied(bench, words, bench.train("train.py"))
    yield from _applied(bench, _RANKS, bench.ranks("ddp.py"))
    yield from _applied(bench, "ddp", bench.train("train.py"), "--ranks", "2")


def _applied(bench: Bench, words: str, command: list[str], *options: str) -> Iterator[tuple[str, str, str]]:
    place = bench.folder / "practices"
    done = bench.run("run", *options, "--with", words, "-o", str(place), *command)
    if "vivace cannot enter" in done.stderr:
        raise Fault(_last_line(done.stderr))
    if "last loss" not in done.stdout or "nan" in done.stdout:
        raise Fault(f"run --with {words}: {done.stdout[-200:]}")
    newest = max(place.glob("*/run.json"), key=lambda path: path.stat().st_mtime)
    told: dict[str, Any] = json.loads(newest.read_text())["told"]
    for word in words.split(","):
        answer = told.get(word, {"state": "fault", "text": "the process said nothing about it"})
        yield word, "fault" if answer["state"] == "failed" else answer["state"], answer["text"]


def preemption(bench: Bench) -> Iterator[tuple[str, str, str]]:
    whole, pieces = bench.folder / "whole", bench.folder / "pieces"
    whole.mkdir()
    pieces.mkdir()
    words = ["run", "--with", "fused_optimizer"]
    expected = bench.run(*words, *bench.train("preempted.py"), cwd=whole).stdout
    bench.run(*words, *bench.train("preempted.py", str(_WARNED_AT)), code=EXIT_SAVED, cwd=pieces)
    resumed = bench.run(*words, *bench.train("preempted.py"), cwd=pieces).stdout
    if f"first step {_WARNED_AT + 1}" not in resumed or _last_line(resumed) != _last_line(expected):
        raise Fault(f"without interruption {_last_line(expected)}, with one {_last_line(resumed)}")
    yield "preemption", "ok", "saved, resumed, the same loss to the last digit"


def ranks(bench: Bench) -> Iterator[tuple[str, str, str]]:
    record = json.loads(bench.run("measure", "--json", "--steps", "15", *bench.ranks("ddp.py")).stdout)
    _expect(record, status="complete", steps=15, missing_ranks=[])
    if [rank["rank"] for rank in record["ranks"]] != [0, 1] or "comm" not in " ".join(record["phases_ms"]):
        raise Fault(f"ranks {[rank['rank'] for rank in record['ranks']]}, phases {list(record['phases_ms'])}")
    yield "two gloo ranks", "ok", f"phases {', '.join(record['phases_ms'])}"


STEPS: dict[str, Callable[[Bench], Iterator[tuple[str, str, str]]]] = {
    "names": names, "measure": measure, "check": check, "tune": tune, "practices": practices,
    "preemption": preemption, "ddp": ranks,
}  # fmt: skip


def try_all(bench: Bench, steps: list[str], report: Callable[[Row], None]) -> None:
    """Every step, and then whether the training's environment is byte for byte as it was."""
    cell = bench.cell
    _compile_what_is_imported(bench)
    environment = bench.python.parent.parent
    before = digests(environment)
    for name in steps:
        try:
            for step, outcome, detail in STEPS[name](bench):
                report(Row(cell.torch, cell.python, step, outcome, detail))
        except (Fault, RuntimeError, KeyError, ValueError, OSError, subprocess.TimeoutExpired) as error:
            report(Row(cell.torch, cell.python, name, "fault", f"{type(error).__name__}: {error}"))
    changed = changes(before, digests(environment))
    says = f"{len(before)} files and folders, byte for byte" if not changed else "; ".join(changed[:5])
    report(Row(cell.torch, cell.python, "environment unchanged", "fault" if changed else "ok", says))


def _compile_what_is_imported(bench: Bench) -> None:
    """The scripts without vivace: Python keeps what they import as .pyc files in their environment, as it should.

    torch imports some of its files when a model is first compiled or a checkpoint saved, hence both here."""
    for command in (bench.train("train.py", "--compile", "--save", "checkpoint.pt"), bench.ranks("ddp.py")):
        for attempt in range(_ATTEMPTS):
            done = subprocess.run(
                command[1:], cwd=bench.folder, env=clean_environment(), capture_output=True, text=True, timeout=_STEP_S
            )
            if done.returncode == 0:
                break
            if attempt == _ATTEMPTS - 1:
                raise RuntimeError(f"{' '.join(command)}, without vivace: {done.stderr[-1000:]}")


def _expect(record: dict[str, Any], **values: Any) -> None:
    for name, value in values.items():
        if record[name] != value:
            raise Fault(f"{name} is {record[name]!r}, not {value!r} ({record.get('reason')})")


def _last_line(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "")
