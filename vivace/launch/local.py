"""Runs the same command on this machine with torchrun: without Slurm, or before the queue.

Writes ``stdout.log``, ``stderr.log`` and ``run.json`` to the run's folder, keeps the exit code.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, BinaryIO

from vivace.errors import UserError
from vivace.launch.request import JobRequest
from vivace.launch.submit import RECORD
from vivace.measure.folder import new_run_folder
from vivace.records.privacy import safe_command
from vivace.records.run import Run, RunState

__all__ = ["run_locally", "torchrun_words"]


def torchrun_words(command: Sequence[str], processes: int) -> list[str]:
    """The command under torchrun, one process per GPU. They meet at localhost: by default it would be the machine's
    name, and where that cannot be looked up the job fails after five minutes.

    >>> torchrun_words(["python", "-u", "train.py", "-b", "8"], 2)[3:]
    ['--standalone', '--local-addr=localhost', '--nproc-per-node=2', 'train.py', '-b', '8']
    """
    head, rest = command[0], list(command[1:])
    where = ("--standalone", "--local-addr=localhost")
    runner = ["-m", "torch.distributed.run", *where, f"--nproc-per-node={processes}"]
    if not Path(head).name.startswith("python"):
        return [sys.executable, *runner, "--no-python", *command]
    while rest and rest[0] == "-u":  # torchrun starts its ranks unbuffered anyway
        rest.pop(0)
    if not rest or (rest[0].startswith("-") and rest[0] != "-m"):
        return [head, *runner, "--no-python", *command]  # torchrun would take the interpreter's option for its own
    return [head, *runner, *rest]


def run_locally(request: JobRequest, output: Path) -> Run:
    """Run it to its end in the foreground; its output is shown and kept."""
    asked = {"--array": request.array, "--after": request.after, "--container": request.container}
    for what, given in {**asked, "--retry-crash": request.retry_crash}.items():
        if given:
            raise UserError(f"{what} needs Slurm", hint=f"drop {what}, or --launcher local")
    folder = new_run_folder(output.absolute(), request.name)
    started = datetime.now(UTC).isoformat(timespec="seconds")
    variables = {"VIVACE_RUNS": str(folder), **request.variables}  # as in a job: records lie beside the logs
    code = _run(torchrun_words(request.words, request.gpus), variables, folder)
    state: RunState = "completed" if code == 0 else "cancelled" if code == 130 else "failed"
    run = Run(
        command=safe_command(request.command),
        practices=request.practices,
        launcher="local",
        name=request.name,
        state=state,
        exit_code=code,
        submitted_at=started,
        started_at=started,
        ended_at=datetime.now(UTC).isoformat(timespec="seconds"),
        folder=str(folder),
        gpus=request.gpus,
        nodes=1,
        stdout=str(folder / "stdout.log"),
        stderr=str(folder / "stderr.log"),
    )
    run.save(folder / RECORD)
    return run


def _run(words: Sequence[str], variables: dict[str, str], folder: Path) -> int:
    try:
        process = subprocess.Popen(
            words,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    except OSError as error:
        raise UserError(f"cannot start {words[0]}: {error.strerror or error}") from None
    pairs = ((process.stdout, "stdout.log"), (process.stderr, "stderr.log"))
    readers = [threading.Thread(target=_copy, args=(pipe, folder / name), daemon=True) for pipe, name in pairs]
    for reader in readers:
        reader.start()
    try:
        code = process.wait()
    except KeyboardInterrupt:  # the ranks have it too, from the terminal: let them end
        process.wait()
        code = 130
    for reader in readers:
        reader.join(timeout=5)
    return code if code >= 0 else 128 - code


def _copy(pipe: IO[bytes] | None, path: Path) -> None:
    assert pipe is not None
    shown: BinaryIO = sys.stderr.buffer  # stdout stays free for --json
    with path.open("wb", buffering=0) as file:
        while data := os.read(pipe.fileno(), 65536):
            file.write(data)
            shown.write(data)
            shown.flush()
