"""Every script of ``tests/scale/zoo``, unedited: one process beside several ranks, all printed numbers compared.

    python benchmarks/scale_equality.py [--ranks 2 3] [--modes ddp zero1 fsdp] [--only cnn,gan]

Writes ``results/scale_equality.csv``: the largest relative difference of any printed number, whether the same files
were written, what was gathered, and what the mode said (what was split, what runs whole, and why, or why it was
refused). Rows of scripts that were not run stay as they were. The scripts run in fp64, where rounding cannot hide a
wrong number.

Ranks are forked from one process with torch in memory, because a start takes longer than a script. They go through the
same door as those that ``vivace run --ranks`` starts. What compiles is started by ``vivace run`` itself.
"""

from __future__ import annotations

import argparse
import atexit
import csv
import fcntl
import itertools
import json
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
ZOO = ROOT / "tests" / "scale" / "zoo"
RESULTS = ROOT / "benchmarks" / "results" / "scale_equality.csv"
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
LIMIT_S = 600


def numbers(text: str) -> list[float]:
    return [float(word) for word in NUMBER.findall(text)]


def difference(alone: str, together: str) -> float | None:
    """The largest relative one; None where other lines were printed."""
    first, second = numbers(alone), numbers(together)
    if NUMBER.sub("#", alone) != NUMBER.sub("#", together):
        return None
    return max((abs(a - b) / max(1e-12, abs(a)) for a, b in zip(first, second, strict=True)), default=0.0)


@dataclass(frozen=True)
class Ran:
    code: int
    printed: str
    errors: str
    files: tuple[str, ...]
    told: str = ""
    gathered: str = ""
    report: dict[str, Any] = field(default_factory=dict)
    """Rank 0's, as in ``vivace.protocol.scale_report``."""


# -- forked --------------------------------------------------------------------------------------------------------


def run(script: Path, ranks: int, mode: str, folder: Path) -> Ran:
    """One process for ``ranks`` of 1, and without a mode."""
    work, answers = folder / "work", folder / "answers"
    work.mkdir()
    answers.mkdir()
    if re.search(r"\bcompile\b", script.read_text()):
        code = _run_command(script, ranks, mode, folder, work)
        answers = next(iter(work.glob("vivace-runs/*")), answers)
    else:
        code = _run_forked(script, ranks, mode, folder, work, answers)
    printed, errors = ((folder / name).read_text(errors="replace") for name in ("out-0", "err-0"))
    told, gathered, report = _told(answers, mode)
    shutil.rmtree(work / "vivace-runs", ignore_errors=True)
    files = tuple(sorted(str(path.relative_to(work)) for path in work.rglob("*") if path.is_file()))
    return Ran(code, printed, errors, files, told, gathered, report)


def _run_command(script: Path, ranks: int, mode: str, folder: Path, work: Path) -> int:
    command = [sys.executable, str(script)]
    if ranks > 1:
        with_ranks = ["run", "--no-prove", "--ranks", str(ranks), "--with", mode, "--"]
        command = [sys.executable, "-m", "vivace", *with_ranks, *command]
    with (folder / "out-0").open("w") as out, (folder / "err-0").open("w") as err:
        return subprocess.run(command, cwd=work, stdout=out, stderr=err, timeout=LIMIT_S).returncode


def _run_forked(script: Path, ranks: int, mode: str, folder: Path, work: Path, answers: Path) -> int:
    sys.stdout.flush()
    children = []
    for rank in range(ranks):
        child = os.fork()
        if child == 0:
            _become(script, rank, ranks, mode, folder, work, answers)
        children.append(child)
    return _wait(children)


def _become(script: Path, rank: int, ranks: int, mode: str, folder: Path, work: Path, answers: Path) -> None:
    """In the forked process: a rank, as ``vivace.scale.launcher`` starts one. Does not return."""
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(folder / f"{name}-{rank}", os.O_WRONLY | os.O_CREAT), number)
    os.chdir(work)
    atexit._clear()
    sys.argv[:] = [str(script)]
    sys.path[0] = str(script.parent)
    code, names = 0, None
    try:
        if ranks > 1:
            _enter(rank, ranks, mode, folder, answers)
        names = runpy.run_path(str(script), run_name="__main__")
    except SystemExit as leave:
        code = leave.code if isinstance(leave.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()  # while the script's names are still there, as at the end of a process
    del names
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _enter(rank: int, ranks: int, mode: str, folder: Path, answers: Path) -> None:
    from vivace.door import enter
    from vivace.protocol.rank import RANK_VARIABLE, WORLD_VARIABLE
    from vivace.protocol.request import Entry, ProcessRequest
    from vivace.scale.place import SCALE_VARIABLE, ScalePlace

    (folder / "meeting").mkdir(exist_ok=True)
    place = ScalePlace(rank, ranks, f"file:{folder / 'meeting'}", rank, seed=1, folder=str(answers))
    os.environ.update({SCALE_VARIABLE: place.to_text(), RANK_VARIABLE: str(rank), WORLD_VARIABLE: str(ranks)})
    enter(ProcessRequest(str(answers), entry=Entry.PRACTICES, measure=False, practices=(mode,)).to_text())


def _wait(children: list[int]) -> int:
    """The first code that is not 0; a rank that fails ends the others, as the launcher does it."""
    until, left, code = time.monotonic() + LIMIT_S, list(children), 0
    while left:
        for child in list(left):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                left.remove(child)
                code = code or os.waitstatus_to_exitcode(status)
        if left and (code or time.monotonic() > until):
            time.sleep(1)
            for child in left:
                os.kill(child, signal.SIGKILL)
            code = code or 124
        time.sleep(0.02)
    return code


def _told(answers: Path, mode: str) -> tuple[str, str, dict[str, Any]]:
    told = [json.loads(path.read_text()) for path in answers.glob("practices-0-*.json")]
    reports = [json.loads(path.read_text()) for path in answers.glob("scale-*.json")]
    text, report = told[-1][mode]["text"] if told else "", reports[-1] if reports else {}
    gathered: dict[str, int] = {}
    for each in report.get("gathered", ()):
        gathered[each["by"]] = gathered.get(each["by"], 0) + each["calls"]
    return text, ", ".join(f"{name} ×{calls}" for name, calls in sorted(gathered.items())), report


# -- the table -----------------------------------------------------------------------------------------------------


def row_of(script: Path, alone: Ran, mode: str, ranks: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        together = run(script, ranks, mode, Path(folder))
    found = difference(alone.printed, together.printed) if together.code == 0 else None
    refused = together.errors.rpartition("ScaleError: ")[2].splitlines()[0] if "ScaleError: " in together.errors else ""
    ended = f"{found:.1e}" if found is not None else "refused" if refused else f"exit code {together.code}"
    if together.code and not refused:
        print(together.errors[-3000:], file=sys.stderr)
    return {
        "script": script.stem,
        "mode": mode,
        "ranks": ranks,
        "numbers": len(numbers(alone.printed)),
        "largest_relative_difference": ended,
        "same_files": "yes" if together.files == alone.files else "no",
        "gathered": together.gathered,
        "told": together.told if together.code == 0 else refused,
    }


def write(rows: list[dict[str, object]]) -> None:
    """Rows of other scripts, modes and numbers of ranks stay; several of us may run at a time."""
    with (Path(tempfile.gettempdir()) / "vivace-scale-equality.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _write(rows)


def table() -> dict[tuple[str, str, int], dict[str, object]]:
    if not RESULTS.exists():
        return {}
    with RESULTS.open(newline="") as file:
        return {(r["script"], r["mode"], int(r["ranks"])): r for r in csv.DictReader(file) if "same_files" in r}


def _write(rows: list[dict[str, object]]) -> None:
    found = {**table(), **{(str(row["script"]), str(row["mode"]), row["ranks"]): row for row in rows}}
    known = {path.stem for path in ZOO.glob("*.py")}
    kept = [found[key] for key in sorted(found) if key[0] in known]
    with RESULTS.open("w", newline="") as file:
        writer = csv.DictWriter(file, kept[0].keys())
        writer.writeheader()
        writer.writerows(kept)


def _import_once() -> None:
    """What every forked rank would import."""
    import torch
    import torch._dynamo
    import torch.distributed.fsdp
    import torch.distributed.tensor

    import vivace.door
    import vivace.practices.engine.entry
    import vivace.scale.install  # noqa: F401

    torch.set_num_threads(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 3])
    parser.add_argument("--modes", nargs="+", default=["ddp", "zero1", "fsdp"])
    parser.add_argument("--only", default="")
    parser.add_argument("--missing", action="store_true", help="only the rows that the table does not have yet")
    asked = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":  # as the launcher sets it: the order of a set is a decision, too
        fresh = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **fresh})
    _import_once()
    for script in sorted(ZOO.glob("*.py")):
        if asked.only and script.stem not in asked.only.split(","):
            continue
        done = table() if asked.missing else {}
        pairs = [pair for pair in itertools.product(asked.modes, asked.ranks) if (script.stem, *pair) not in done]
        if not pairs:
            continue
        with tempfile.TemporaryDirectory() as folder:
            alone = run(script, 1, "", Path(folder))
        assert alone.code == 0, alone.errors
        for mode, ranks in pairs:
            row = row_of(script, alone, mode, ranks)
            print(*row.values(), sep="  ", flush=True)
            write([row])


if __name__ == "__main__":
    main()
