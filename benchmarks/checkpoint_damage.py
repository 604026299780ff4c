"""What becomes of a training whose checkpoints were damaged, or whose save was interrupted: one row for each trial.

    python benchmarks/checkpoint_damage.py [--times 5] [--only TEXT]

Four groups: files that were damaged after the save; SIGKILL of each rank at each phase of a save; a system that
refuses (full disk, read-only, no permission); and files that want to run code. Each trial asks: which step was loaded,
is every value that of this step, what was said? ``verdict`` is one of "fell back", "kept" (the newest was still good),
"refused", "went on without saving", and "WRONG". The same damage given to plain ``dcp.load`` stands beside it. Writes
``results/checkpoint_damage.csv``. Small disks and other users need root; else those rows say that they were not run.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

import torch  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
from checkpoint import damage  # noqa: E402
from checkpoint.lives import Life, by_step, losses  # noqa: E402
from rows import Table, hardware  # noqa: E402
from torch.distributed.checkpoint.api import CheckpointException  # noqa: E402

from vivace.checkpoint import CheckpointError, Checkpoints, Phase, TrainState  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "checkpoint_damage.csv"
FIELDS = (
    "group",
    "fault",
    "trial",
    "where",
    "verdict",
    "loaded_step",
    "steps_lost",
    "plain_dcp",
    "said",
    "hardware",
    "torch",
)
STEPS, SAVE_EVERY = 20, 5


def tensors(step: int) -> dict[str, object]:
    drawn = torch.Generator().manual_seed(step)
    moments = {"first": torch.randn(64, 9, generator=drawn)}
    return {"weight": torch.randn(300, generator=drawn), "moments": moments, "note": f"s{step}"}


def empty() -> dict[str, object]:
    return {"weight": torch.zeros(300), "moments": {"first": torch.zeros(64, 9)}, "note": ""}


def equal(state: dict, step: int) -> bool:
    saved = tensors(step)
    return torch.equal(state["weight"], saved["weight"]) and torch.equal(
        state["moments"]["first"], saved["moments"]["first"]
    )


@contextlib.contextmanager
def said() -> Iterator[list[str]]:
    """What is printed on stderr, as one text."""
    found: list[str] = []
    with tempfile.TemporaryFile("w+") as file:
        before, sys.stderr = sys.stderr, file
        try:
            yield found
        finally:
            sys.stderr = before
            file.seek(0)
            found.append(file.read().strip())


def damaged_files(table: Table, times: int, only: str) -> None:
    kinds: dict[str, Callable] = {**damage.DAMAGES, "evil index": damage.evil_index, "evil value": damage.evil_value}
    kinds["evil state of a rank"] = damage.evil_state
    for kind, spoil in kinds.items():
        for trial in range(times if "evil" not in kind else 1):
            if only not in kind:
                continue
            with tempfile.TemporaryDirectory() as folder:
                _one_damage(Path(folder), kind, spoil, trial, table)


def _one_damage(folder: Path, kind: str, spoil: Callable, trial: int, table: Table) -> None:
    root = folder / "ours"
    with Checkpoints(root) as checkpoints:
        for step in (1, 2):
            checkpoints.save(tensors(step), TrainState(step))
    where = spoil(root / "step-00000002", random.Random(f"{kind}-{trial}"))
    state = empty()
    loaded, with_words = "", ""
    with said() as words:
        try:
            found = Checkpoints(root).load(state)
        except CheckpointError as error:
            verdict, with_words = "refused", str(error)
        else:
            loaded = found.step if found is not None else 0
            right = found is not None and equal(state, found.step)
            verdict = "WRONG" if not right else "fell back" if loaded == 1 else "kept"
    if (root / "executed").exists():
        verdict = "WRONG"
    table.add(
        group="damaged files",
        fault=kind,
        trial=trial,
        where=where,
        verdict=verdict,
        loaded_step=loaded,
        plain_dcp=_plain(folder / "plain", kind, spoil, trial),
        said=" ".join((with_words or words[0]).split()).replace(str(folder), "…"),
    )


def _plain(folder: Path, kind: str, spoil: Callable, trial: int) -> str:
    """The same with DCP alone, where it has such a file: one folder for each step."""
    if any(word in kind for word in ("manifest", "marker", "state", "rank")):
        return "no such file"
    for step in (1, 2):
        dcp.save(tensors(step), checkpoint_id=str(folder / f"step-0000000{step}"))
    if kind in ("evil index", "evil value"):
        name = folder / "executed"
        if kind == "evil index":
            import pickle

            (folder / "step-00000002" / ".metadata").write_bytes(pickle.dumps(damage.Evil(name)))
        else:
            dcp.save({**tensors(2), "note": damage.Evil(name)}, checkpoint_id=str(folder / "step-00000002"))
    else:
        spoil(folder / "step-00000002", random.Random(f"{kind}-{trial}"))
    state = empty()
    try:
        dcp.load(state, checkpoint_id=str(folder / "step-00000002"))
    except (Exception, CheckpointException):
        return "EXECUTED" if (folder / "executed").exists() else "raises"
    if (folder / "executed").exists():
        return "EXECUTED"
    return "loads the right values" if equal(state, 2) else "LOADS WRONG VALUES"


def kills(table: Table, only: str) -> None:
    """Two ranks; the second or third save is interrupted."""
    expected = None
    for options in ((), ("--background",)):
        with tempfile.TemporaryDirectory() as folder:
            Life(Path(folder), STEPS, 2, options).wait()
            expected = expected or by_step(losses(Path(folder)))
        for rank in (0, 1):
            for phase in Phase:
                name = f"kill -9 of rank {rank} at {phase.value}"
                if (rank and phase in (Phase.INDEX, Phase.RENAMED, Phase.COMPLETE)) or only not in name:
                    continue  # those are the first rank's alone
                with tempfile.TemporaryDirectory() as folder:
                    _one_kill(Path(folder), rank, phase, options, expected, name, table)


def _one_kill(folder: Path, rank: int, phase: Phase, options: tuple, expected: dict, name: str, table: Table) -> None:
    at = 2 * SAVE_EVERY
    ended = Life(folder, STEPS, 2, (*options, "--die", f"{rank}:{phase.value}:{at}")).wait(120)
    assert ended.codes[rank] == -9, (name, ended)
    before = len(losses(folder))
    again = Life(folder, STEPS, 2, options).wait()
    lines = losses(folder)
    first = int(lines[before].split()[0])
    right = again.codes == [0, 0] and by_step(lines) == expected
    table.add(
        group="kill while saving" + (" in the background" if options else ""),
        fault=name,
        trial=0,
        where=f"save of step {at}",
        verdict="WRONG" if not right else "kept" if first == at else "fell back",
        loaded_step=first,
        steps_lost=int(lines[before - 1].split()[0]) + 1 - first,
        said=" ".join(line for line in again.err.splitlines() if line.startswith("vivace:")).replace(str(folder), "…"),
    )


def refusals(table: Table, only: str) -> None:
    for name, prepare in (
        ("disk full before the save", _small_disk),
        ("disk full while writing", _filling_disk),
        ("folder is read-only", _read_only),
        ("folder of another user", _other_user),
    ):
        if only in name:
            with tempfile.TemporaryDirectory() as folder:
                row = {"group": "the system refuses", "fault": name, "trial": 0}
                if os.geteuid() != 0:
                    table.add(**row, verdict="not run", said="needs root")
                    continue
                table.add(**row, **prepare(Path(folder)))


def _mounted(folder: Path, options: str) -> contextlib.ExitStack:
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=True)
    stack = contextlib.ExitStack()
    stack.callback(subprocess.run, ["umount", "-l", str(folder)])
    return stack


def _went_on(folder: Path, options: tuple[str, ...]) -> dict[str, object]:
    """A training on two ranks whose saves fail: to its end, and with ``--on-error stop``."""
    ended = Life(folder, STEPS, 2, options).wait()
    stopped = Life(folder, STEPS + SAVE_EVERY, 2, (*options, "--on-error", "stop")).wait()
    loud = [line for line in ended.err.splitlines() if "WAS NOT SAVED" in line]
    right = ended.codes == [0, 0] and bool(loud) and stopped.codes == [1, 1] and "NotSaved" in stopped.err
    left = [path.name for path in (folder / "checkpoints").glob("*.tmp-*")] if (folder / "checkpoints").is_dir() else []
    return {
        "where": "2 ranks",
        "verdict": "went on without saving" if right and not left else "WRONG",
        "said": (loud or [""])[0].replace(str(folder), "…"),
    }


def _small_disk(folder: Path) -> dict[str, object]:
    with _mounted(folder / "disk", "size=600k"):
        return _went_on(folder / "disk", ("--width", "4000"))


def _filling_disk(folder: Path) -> dict[str, object]:
    """The look before the save sees room; then somebody takes it."""
    with _mounted(folder / "disk", "size=4m"):
        root, filler = folder / "disk" / "c", folder / "disk" / "filler"

        def fill(phase: Phase) -> None:
            if phase is Phase.PLANNED:
                filler.write_bytes(b"x" * (5 * 2**19))

        large = {"weight": torch.zeros(2**18), "more": torch.zeros(2**18)}
        with said() as words, Checkpoints(root, on_phase=fill) as checkpoints:
            saved = checkpoints.save(large, TrainState(1))
        clean = saved.error is not None and list(root.iterdir()) == []
        return {"where": "1 rank", "verdict": "went on without saving" if clean else "WRONG",
                "said": words[0].replace(str(folder), "…")}  # fmt: skip


def _read_only(folder: Path) -> dict[str, object]:
    with _mounted(folder / "disk", "size=4m"):
        root = folder / "disk" / "c"
        with Checkpoints(root) as checkpoints:
            checkpoints.save(tensors(1), TrainState(1))
        subprocess.run(["mount", "-o", "remount,ro", str(folder / "disk")], check=True)
        state = empty()
        with said() as words, Checkpoints(root) as checkpoints:
            found = checkpoints.load(state)
            saved = checkpoints.save(tensors(2), TrainState(2))
        right = found is not None and equal(state, 1) and saved.error is not None
        return {"where": "1 rank", "loaded_step": 1, "verdict": "went on without saving" if right else "WRONG",
                "said": words[0].replace(str(folder), "…")}  # fmt: skip


AS_NOBODY = """
import os, sys
sys.path[:0] = [{root!r}, {benchmarks!r}]
import checkpoint_damage as ours
from vivace.checkpoint import Checkpoints, CheckpointError, TrainState
import torch.distributed.checkpoint
os.setgid(65534); os.setuid(65534)
with Checkpoints({folder!r}) as checkpoints:
    print(checkpoints.save(ours.tensors(2), TrainState(2)).error)
    try:
        checkpoints.load(ours.empty())
    except CheckpointError as error:
        print("REFUSED", error)
"""


def _other_user(folder: Path) -> dict[str, object]:
    root = folder / "c"
    with Checkpoints(root) as checkpoints:
        checkpoints.save(tensors(1), TrainState(1))
    for path in (folder, root):
        path.chmod(0o755)
    (root / "step-00000001" / "state-00000.pt").chmod(0o600)
    code = AS_NOBODY.format(root=str(ROOT), benchmarks=str(ROOT / "benchmarks"), folder=str(root))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd="/")
    right = "Permission denied" in done.stdout and "REFUSED" in done.stdout and "state-00000.pt" in done.stdout
    words = " ".join((done.stdout if right else done.stderr[-300:]).split()).replace(str(folder), "…")
    return {"where": "1 rank", "verdict": "refused" if right else "WRONG", "said": words}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--only", default="")
    asked = parser.parse_args()
    if not asked.only:
        RESULTS.unlink(missing_ok=True)
    table = Table(RESULTS, FIELDS, hardware("cpu"))
    damaged_files(table, asked.times, asked.only)
    refusals(table, asked.only)
    kills(table, asked.only)


if __name__ == "__main__":
    main()
