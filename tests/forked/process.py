"""Scripts in processes that are forked from one that has torch in memory (``template.py``)."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from conftest import environment

from vivace.protocol.request import VARIABLE

__all__ = ["CHECKPOINTS", "ForkedProcess", "can_fork", "run"]

TEMPLATE = Path(__file__).parent / "template.py"
# Read by the bootstrap, by the script, when CUDA starts or when something is compiled: always after the fork.
READ_LATER = (
    "VIVACE_", "PYTHONPATH", "PYTEST_", "PWD", "CUDA_VISIBLE_DEVICES", "TORCHINDUCTOR_CACHE_DIR", "RANK", "WORLD_SIZE",
    "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MEETING", "PLANTED",
)  # fmt: skip
COMPILES = re.compile(r"\bcompile\b")


def _read_at_start(variables: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    return frozenset((name, value) for name, value in variables.items() if not name.startswith(READ_LATER))


class _Template:
    """It ends when this process does: the socket is closed then."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self.channel, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        words = [sys.executable, str(TEMPLATE), str(other.fileno())]
        self.process = subprocess.Popen(words, env=variables, pass_fds=[other.fileno()], stdin=subprocess.DEVNULL)
        other.close()


# For FORKED_IMPORTS: trainings on ranks that save, and pay for these imports in every rank.
CHECKPOINTS = "torch.distributed.checkpoint.state_dict,numpy"
# A plain process, one whose metric vivace reads, one that it measures, and one that saves.
STARTS = {
    _read_at_start(variables): variables
    for variables in (
        environment(),
        environment(PYTHONUNBUFFERED="1"),
        environment(PYTHONUNBUFFERED="1", KINETO_LOG_LEVEL="99"),
        environment(FORKED_IMPORTS=CHECKPOINTS),
    )
}
_idle: dict[frozenset[tuple[str, str]], list[_Template]] = {start: [] for start in STARTS}


def can_fork(command: Sequence[str], variables: Mapping[str, str], folder: Path | str = ".") -> bool:
    """A script or module for this Python, unless it could tell a difference.

    Libraries read variables when they are loaded: with others it needs a fresh process. So does what is compiled: the
    template has loaded torch.compile's front end, and vivace comes in before that.
    """
    if command[0] != sys.executable or _read_at_start(variables) not in STARTS:
        return False
    text = _source(command[1:], folder)
    return text is not None and not COMPILES.search(text + variables.get(VARIABLE, ""))


def _source(words: Sequence[str], folder: Path | str) -> str | None:
    if words[:1] == ["-m"] and (spec := importlib.util.find_spec(words[1])) is not None and spec.origin:
        return Path(spec.origin).read_text()
    if words and words[0].endswith(".py"):
        with contextlib.suppress(OSError):
            return Path(folder, words[0]).read_text()
    return None


class ForkedProcess:
    """What vivace and the tests use of ``subprocess.Popen(command, env=…, cwd=…, stdout=…, stderr=…)``."""

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        cwd: Path | str | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
        stdin: int | None = None,
        process_group: int | None = None,
    ) -> None:
        self.returncode: int | None = None
        with contextlib.ExitStack() as ours_no_longer:
            self.stdin, given = _ends(stdin, 0, ours_no_longer)
            self.stdout, out = _ends(stdout, 1, ours_no_longer)
            self.stderr, err = _ends(stderr, 2, ours_no_longer)
            self._start = _read_at_start(env)
            self._template = _idle[self._start].pop() if _idle[self._start] else _Template(STARTS[self._start])
            asked = {"words": list(command[1:]), "folder": str(cwd or os.getcwd()), "environment": dict(env)}
            asked["own_group"] = process_group == 0
            socket.send_fds(self._template.channel, [json.dumps(asked).encode()], [given, out, err])
        self.pid = int(self._template.channel.recv(100))

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._template.channel], [], [], 0)[0]:
            self.returncode = int(self._template.channel.recv(100))
            _idle[self._start].append(self._template)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            select.select([self._template.channel], [], [], timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _ends(asked: int | None, own: int, ours_no_longer: contextlib.ExitStack) -> tuple[IO[bytes] | None, int]:
    """Our end of a pipe, if one was asked for, and the file that the process gets."""
    if asked == subprocess.PIPE:
        reader, writer = os.pipe()
        mine, other = (writer, reader) if own == 0 else (reader, writer)
        ours_no_longer.callback(os.close, other)
        return os.fdopen(mine, "wb" if own == 0 else "rb"), other
    if asked == subprocess.DEVNULL:
        return None, ours_no_longer.enter_context(open(os.devnull, "r+b")).fileno()
    return None, own if asked is None else asked


def run(command: Sequence[str], folder: Path, env: Mapping[str, str], timeout_s: float) -> subprocess.CompletedProcess:
    """As ``subprocess.run(command, capture_output=True, text=True, cwd=folder, env=env, timeout=timeout_s)``."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = ForkedProcess(command, env, folder, out.fileno(), err.fileno())
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        printed = [(file.seek(0), file.read())[1] for file in (out, err)]
    return subprocess.CompletedProcess(command, process.returncode, *printed)
