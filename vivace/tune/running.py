"""``run --with``: the full training with practices applied, the script unedited. Its standard streams are its own.

The training starts first; records, whose types take a tenth of a second to import, come while it imports torch.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from vivace.errors import ExitCode, UserError
from vivace.measure.folder import name_of_command, new_run_folder
from vivace.measure.starting import command_not_found, environment_for
from vivace.measure.told import read_told
from vivace.practices.engine.registry import environment_of, parse_words
from vivace.protocol.answers import PracticeAnswer, PracticeState, answers_from_text
from vivace.protocol.rank import rank_and_world
from vivace.protocol.request import Entry, ProcessRequest
from vivace.protocol.scale_report import REPORTS
from vivace.protocol.unmeasured import UNMEASURED, read_unmeasured
from vivace.records.privacy import safe_command

if TYPE_CHECKING:
    from vivace.records.equality import Equality
    from vivace.records.run import Run, RunState
    from vivace.records.scale import SplitFacts

__all__ = ["MODES", "Ran", "read_words", "run"]

MODES = frozenset({"ddp", "zero1", "fsdp"})
"""Practices that split the work over ranks."""
RECORD = "run.json"
_REFUSED = "refused-*.json"
_POLL_S = 0.2
_FORWARDED = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP)


@dataclass(frozen=True)
class Ran:
    exit_code: int
    folder: Path
    told: dict[str, PracticeAnswer]
    missing: tuple[str, ...] = ()
    """With ``strict``: the practices that it failed for although the command itself ended well."""
    folder_gone: bool = False
    """The command deleted the run's folder: what became of the practices is not known."""
    unrecorded: str | None = None
    """Why the run's record could not be written (a full disk); the exit code is the command's all the same."""


def read_words(text: str) -> tuple[str, ...]:
    """The words of ``--with``: names, and ``@vivace-runs/x`` for what a tune found."""
    words: list[str] = []
    for word in text.split(","):
        word = word.strip()
        if word.startswith("@"):
            path = Path(word[1:])
            from vivace.records.proof import Proof

            proof = Proof.load(_proof_in(path) if path.is_dir() else path)
            words += [gain.practice for gain in proof.practices]  # none, where the tune kept none
        elif word:
            words.append(word)
    return parse_words(words)


def _proof_in(folder: Path) -> Path:
    path = folder / "proof.json"
    if path.is_file():
        return path
    if (folder / "tune.json").is_file():
        raise UserError(f"the tune in {folder} is not finished", hint=f"vivace tune --resume {folder}")
    known = sorted(folder.resolve().parent.glob("*/proof.json"), key=lambda found: found.stat().st_mtime)
    hint = f"the latest one is in @{folder.parent / known[-1].parent.name}" if known else "vivace tune -- COMMAND"
    raise UserError(f"{folder} contains no tune", hint=hint)


def run(
    command: Sequence[str],
    words: Sequence[str],
    strict: bool,
    output: Path,
    name: str | None,
    on_told: Callable[[dict[str, PracticeAnswer]], None],
    ranks: int | None = None,
    equality: Equality | None = None,
) -> Ran:
    """``on_told`` is called once, when the process has said what became of each practice.

    ``ranks``: as so many processes; None: as one, or as one of those that a job has started. ``equality``: what was
    proved of that, for the record.

    With ``strict`` a training stops by itself after its first steps; one that ends before that fails here.
    """
    if not command:
        raise UserError("no command to run", hint="vivace run --with bf16 -- python train.py …")
    folder = new_run_folder(_place(output), name or name_of_command(command))
    whole = folder.absolute()  # the command may delete the working folder
    request = ProcessRequest(
        folder=str(folder.resolve()), entry=Entry.PRACTICES, measure=False, practices=tuple(words), strict=strict
    )
    started_at = _now()
    environment = environment_for(request, {**environment_of(words), **os.environ})
    try:
        process = _start(_split(command, words, ranks), environment)
    except UserError:
        record = _record(command, words, folder, started_at, ranks, equality)
        _keep(record.model_copy(update={"state": "failed", "ended_at": _now()}), whole)
        raise
    with _signals_passed_on(process):
        record = _record(command, words, folder, started_at, ranks, equality)
        if whole.is_dir():
            _keep(record, whole)
        code = _wait(process, whole, on_told)
    gone = not whole.is_dir()
    told = _told(whole) or _refused_by_the_process(whole, words)
    # No word about a practice: nothing trained, or vivace was kept out of the process (`python -I`, another vivace).
    missing = tuple(word for word in words if word not in told or not told[word].applied)
    ended_too_early = strict and code == 0 and bool(missing)
    code = ExitCode.NOTHING if ended_too_early else code
    state: RunState = "completed" if code == 0 else "cancelled" if code in (130, 143) else "failed"
    scale = _split_facts(whole) if ranks is not None else None
    ended = record.model_copy(
        update={"state": state, "exit_code": code, "ended_at": _now(), "told": told, "scale": scale}
    )
    unrecorded = _keep(ended, whole)
    return Ran(code, folder, told, missing if ended_too_early else (), gone, unrecorded)


def _keep(record: Run, folder: Path) -> str | None:
    """Write the record, or say why not: whatever happens to it, the training and its exit code come first."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        record.save(folder / RECORD)
        for pattern in ("practices-*.json", _REFUSED, UNMEASURED, REPORTS) if record.exit_code is not None else ():
            for path in folder.glob(pattern):
                path.unlink(missing_ok=True)
    except OSError as error:
        return f"{error.strerror or error} ({error.filename or folder})"
    return None


def _record(
    command: Sequence[str], words: Sequence[str], folder: Path, started_at: str, ranks: int | None,
    equality: Equality | None,
) -> Run:  # fmt: skip
    from vivace.records.run import Run

    return Run(
        command=safe_command(command),
        practices=tuple(words),
        launcher="local",
        name=folder.name,
        state="running",
        started_at=started_at,
        folder=str(folder),
        ranks=ranks,
        equality=equality,
    )


def _split_facts(folder: Path) -> SplitFacts | None:
    from vivace.records.scale import read_split_facts

    return read_split_facts(folder)


def _told(folder: Path) -> dict[str, PracticeAnswer]:
    """What became of the practices; where nothing trained, why they were refused."""
    if told := read_told(folder):
        return told
    for path in sorted(folder.glob(_REFUSED)):
        with contextlib.suppress(OSError, ValueError):
            return answers_from_text(path.read_text())
    return {}


def _refused_by_the_process(folder: Path, words: Sequence[str]) -> dict[str, PracticeAnswer]:
    """Where vivace could not enter it: for every practice the same reason."""
    why = read_unmeasured(folder)
    return {word: PracticeAnswer(PracticeState.REFUSED, why.text) for word in words} if why is not None else {}


def _place(output: Path) -> Path:
    """Under srun every rank runs its own vivace: only the first one's record is worth a folder of the user's."""
    rank, _world = rank_and_world()
    return output if rank == 0 else output / ".ranks"


def _split(command: Sequence[str], words: Sequence[str], ranks: int | None) -> Sequence[str]:
    """Under vivace's launcher, where the work is split: it starts the ranks, or is one of those that a job started."""
    if not MODES.intersection(words):
        return command
    from vivace.scale.launcher import over_ranks

    return [*over_ranks(ranks), *command]


def _start(command: Sequence[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        return subprocess.Popen(list(command), env=environment)
    except FileNotFoundError:
        raise command_not_found(command[0], "run --with …") from None
    except OSError as error:
        raise UserError(f"cannot start {command[0]}: {error.strerror or error}") from None


def _wait(process: subprocess.Popen[bytes], folder: Path, on_told: Callable[[dict[str, PracticeAnswer]], None]) -> int:
    told = False
    while not _has_ended(process):
        if not told and (state := read_told(folder)):
            told = True
            on_told(state)
    if not told and folder.is_dir() and read_unmeasured(folder) is None:  # the process has said that itself
        on_told(_told(folder))
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Waits a little, and no longer than the process runs: ranks that end together should be seen to."""
    try:
        process.wait(_POLL_S)
    except subprocess.TimeoutExpired:
        return False
    return True


@contextlib.contextmanager
def _signals_passed_on(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Slurm signals the batch script's children or vivace alone: the training must get it. Ctrl-C reaches both."""

    def forward(number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)

    previous = {number: signal.signal(number, forward) for number in _FORWARDED}
    previous[signal.SIGINT] = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        for number, handler in previous.items():
            # srun signals the slower ranks once one has ended. The training has ended too: its exit code must get out.
            signal.signal(number, signal.SIG_IGN if handler is signal.SIG_DFL else handler)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
