"""Starts a command as several ranks on this machine: ``python -m vivace.scale.launcher --ranks 4 … -- COMMAND``.

Each rank gets its number in a variable of vivace's own and, where there are GPUs, one of them. The output of rank 0 is
the output; the others' goes to ``rank-N.log`` in the run's folder. A rank that fails ends the others, and the first one
that failed is named; so is one that is stopped. Standard library only: the command's Python may be another one.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from vivace.preemption.requeueing import EXIT_INTERRUPTED
from vivace.protocol.rank import RANK_VARIABLE, WORLD_VARIABLE
from vivace.protocol.request import VARIABLE, ProcessRequest
from vivace.scale.ending import RankEnd, read_ends
from vivace.scale.place import SCALE_VARIABLE, ScalePlace
from vivace.scale.progress import Behind, Standstill, line_of, prepare, where_it_stands
from vivace.scale.stopped import Stopped

__all__ = ["launch", "launch_in_job", "main", "over_ranks", "visible_gpus"]

_POLL_S = 0.02  # in which two ends are not told apart, if a rank was aborted
_LOOK_S = 1.0  # at whether a rank is stopped
_SEED_BITS = 32  # as many as numpy takes
_LONGEST_LINE = 300
_TOGETHER_S = 2.0  # what ends so soon after a failure ended by itself: perhaps it is the cause
_GRACE_S = 15.0  # between asking a rank to end and killing it
_HIDDEN = (
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_RANK", "MASTER_ADDR", "MASTER_PORT",
    "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_STEP_ID", "SLURM_STEPID",
    "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES", "TORCHELASTIC_RUN_ID",
)  # fmt: skip


def over_ranks(ranks: int | None) -> tuple[str, ...]:
    """What stands before a command that is split over so many ranks; None: it is one of those that a job started."""
    several = ("--ranks", str(ranks)) if ranks is not None else ()
    return (sys.executable, "-m", "vivace.scale.launcher", *several, "--")


def launch(command: Sequence[str], ranks: int, folder: Path) -> int:
    """Run it to its end; the exit code of the first rank that failed, or 0."""
    folder.mkdir(parents=True, exist_ok=True)
    gpus, seed = visible_gpus(), secrets.randbits(_SEED_BITS)
    with tempfile.TemporaryDirectory(prefix="vivace-") as meeting:
        places = [
            ScalePlace(rank, ranks, f"file:{meeting}", rank, len(gpus) >= ranks, seed, str(folder))
            for rank in range(ranks)
        ]
        prepare(Path(meeting), ranks)
        processes = [_start(command, place, gpus, folder) for place in places]
        with _passed_on(processes):
            return _wait(processes, folder, Path(meeting))


def launch_in_job(command: Sequence[str], folder: Path) -> int:
    """One rank of a job whose launcher (srun, torchrun) has started one of us for each: to its end, as above."""
    folder.mkdir(parents=True, exist_ok=True)
    gpus = visible_gpus()
    local, local_world = int(os.environ.get("LOCAL_RANK", "0")), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    meet = f"tcp:{os.environ.get('MASTER_ADDR', 'localhost')}:{os.environ.get('MASTER_PORT', '29500')}"
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    own_gpu = len(gpus) > local and len(gpus) >= local_world
    process = _start(
        command, ScalePlace(rank, world, meet, local, own_gpu, _seed_of_the_job(meet), str(folder)), gpus, folder
    )
    with _passed_on([process]):
        return _wait_for_one(process, rank)


def _wait_for_one(process: subprocess.Popen[bytes], rank: int) -> int:
    stopped = Stopped()
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = process.wait(_LOOK_S)
            return code if code >= 0 else 128 - code
        if (found := stopped.look([process.pid])) is not None:
            return _tell_stopped([process], rank, found[1])


def _seed_of_the_job(meet: str) -> int:
    """No launcher of ours starts all ranks there: from what they all know, and another job does not."""
    names = ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT", "TORCHELASTIC_RUN_ID")
    return zlib.crc32(json.dumps([meet, *map(os.environ.get, names)]).encode())


def _start(command: Sequence[str], place: ScalePlace, gpus: Sequence[str], folder: Path) -> subprocess.Popen[bytes]:
    environment = {name: value for name, value in os.environ.items() if name not in _HIDDEN}
    environment[SCALE_VARIABLE] = place.to_text()
    environment[RANK_VARIABLE], environment[WORLD_VARIABLE] = str(place.rank), str(place.world)
    environment.setdefault("PYTHONHASHSEED", "0")  # the order of a set is a decision, too
    if gpus:
        environment["CUDA_VISIBLE_DEVICES"] = gpus[place.local_rank % len(gpus)]
    else:
        cores = max(1, len(os.sched_getaffinity(0)) // place.world)
        environment.setdefault("OMP_NUM_THREADS", str(cores))
    if place.rank == 0:
        return subprocess.Popen(list(command), env=environment)
    with (folder / _log(place.rank)).open("wb") as log:
        return subprocess.Popen(
            list(command), env=environment, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
        )


def visible_gpus() -> list[str]:
    """Their names for CUDA_VISIBLE_DEVICES; none where there is no driver."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name for name in named.split(",") if name.strip()]
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30).stdout
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [str(index) for index, line in enumerate(listed.splitlines()) if line.startswith("GPU ")]


def _wait(processes: Sequence[subprocess.Popen[bytes]], folder: Path, meeting: Path) -> int:
    ended_at: dict[int, float] = {}
    stopped, standstill, looked_at = Stopped(), Standstill(meeting), time.monotonic()
    while len(ended_at) < len(processes):
        _note_ends(processes, ended_at)
        if time.monotonic() - looked_at > _LOOK_S:
            looked_at = time.monotonic()
            if (found := stopped.look([process.pid for process in processes])) is not None:
                return _tell_stopped(processes, *found)
            if (behind := standstill.look()) is not None:
                _tell_standstill(behind, folder, meeting)
        if any(processes[rank].returncode for rank in ended_at):
            until = time.monotonic() + _TOGETHER_S
            while time.monotonic() < until and len(ended_at) < len(processes):
                time.sleep(_POLL_S)
                _note_ends(processes, ended_at)
            codes = {processes[rank].returncode for rank in ended_at}
            _end(processes)
            if EXIT_INTERRUPTED in codes:  # all ranks had saved before the first of them left, and rank 0 has said so
                return EXIT_INTERRUPTED
            return _tell_failure(processes, ended_at, folder, read_ends(meeting))
        time.sleep(_POLL_S)
    return 0


def _note_ends(processes: Sequence[subprocess.Popen[bytes]], ended_at: dict[int, float]) -> None:
    for rank, process in enumerate(processes):
        if process.poll() is not None:
            ended_at.setdefault(rank, time.time())


def _tell_failure(
    processes: Sequence[subprocess.Popen[bytes]], seen_at: dict[int, float], folder: Path, ends: dict[int, RankEnd]
) -> int:
    """Name the rank that failed first, among those that ended by themselves.

    One that was killed comes first: the loss of another rank raises an error, or aborts, and kills nobody.
    """
    since = {rank: ends[rank].at if rank in ends else at for rank, at in seen_at.items()}
    codes = {rank: processes[rank].returncode for rank in seen_at if processes[rank].returncode}
    failed = min(codes, key=lambda rank: (codes[rank] > 0 or codes[rank] == -signal.SIGABRT, since[rank]))
    code = codes[failed]
    how = f"signal {-code} ({_signal_name(-code)})" if code < 0 else f"exit code {code}"
    error = ends[failed].error if failed in ends else ""
    why = error or (_last_line(folder / _log(failed)) if failed > 0 else "")
    early = [str(rank) for rank in seen_at if processes[rank].returncode == 0 and since[rank] < since[failed]]
    sys.stderr.write(
        f"vivace: rank {failed} ended with {how}, and the others with it"
        + (f": {why}" if why else "")
        + (f" (rank {', '.join(early)} had left before it, with exit code 0)" if early else "")
        + (f"; its output: {folder / _log(failed)}" if failed > 0 else "")
        + "\n"
    )
    return code if code >= 0 else 128 - code


def _tell_stopped(processes: Sequence[subprocess.Popen[bytes]], rank: int, process: int) -> int:
    sys.stderr.write(
        f"vivace: rank {rank} is stopped (process {process}, by SIGSTOP or a debugger), and the others wait for it: "
        "the training ends\n"
    )
    sys.stderr.flush()
    _end(processes, process)
    return 128 + signal.SIGSTOP


def _tell_standstill(behind: Behind, folder: Path, meeting: Path) -> None:
    """The training goes on: a rank may be slow for a good reason."""
    lines = []
    for rank in behind.ranks or behind.waiting:
        stacks = where_it_stands(meeting, rank)
        (folder / f"rank-{rank}-stacks.txt").write_text(stacks)
        place = line_of(stacks)
        lines.append(f"rank {rank} is at {place}" if place else f"rank {rank} does not answer")
    waiting = ", ".join(map(str, behind.waiting))
    sys.stderr.write(
        f"vivace: nothing was exchanged for a minute, and rank {waiting} waits: {'; '.join(lines)} "
        f"(stacks: {folder}/rank-*-stacks.txt). The training goes on; the ranks that wait give up after half an hour\n"
    )
    sys.stderr.flush()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


def _log(rank: int) -> str:
    return f"rank-{rank}.log"


def _last_line(log: Path) -> str:
    try:
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        return ""
    return lines[-1][:_LONGEST_LINE] if lines else ""


def _end(processes: Sequence[subprocess.Popen[bytes]], stopped: int | None = None) -> None:
    """``stopped``: a process that has to go on in order to end."""
    for process in processes:
        if process.poll() is None:
            process.terminate()
    if stopped is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(stopped, signal.SIGCONT)
    until = time.monotonic() + _GRACE_S
    while time.monotonic() < until and any(process.poll() is None for process in processes):
        time.sleep(_POLL_S)
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.wait()


@contextlib.contextmanager
def _passed_on(processes: Sequence[subprocess.Popen[bytes]]) -> Iterator[None]:
    """Ctrl-C of a terminal reaches the ranks by itself; a signal to us alone is theirs."""

    def pass_on(number: int, _frame: object) -> None:
        for process in processes:
            if process.poll() is None:
                process.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        for number, handler in before.items():
            # srun signals the slower ranks once one has ended. Ours have ended too: their exit code must get out.
            signal.signal(number, signal.SIG_IGN if handler is signal.SIG_DFL else handler)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m vivace.scale.launcher", description=__doc__)
    parser.add_argument("--ranks", type=int, help="how many to start; without it: one of those that a job has started")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    asked = parser.parse_args()
    command = asked.command[1:] if asked.command[:1] == ["--"] else asked.command
    folder = Path(ProcessRequest.from_text(os.environ[VARIABLE]).folder)
    sys.exit(launch(command, asked.ranks, folder) if asked.ranks else launch_in_job(command, folder))


if __name__ == "__main__":
    main()
