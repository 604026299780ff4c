"""Scripts in processes that are forked from one that has torch in memory (``server.py``)."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from conftest import environment
from forked.stand_in import COMPILES, OF_LAUNCHERS, READ_LATER, UNBUFFERED, ask, read_at_start

from vivace.protocol.request import VARIABLE

__all__ = ["CHECKPOINTS", "PYTHON", "ForkedProcess", "can_fork", "run"]

HERE = Path(__file__).parent
# Programs that tests start with PYTHON. It is a file, not this process: see ``stand_in.py``.
_SESSION = tempfile.TemporaryDirectory(prefix="vft-")


class _Server:
    """Starts when the first script is asked for. It ends when this process does: the pipe is closed then."""

    def __init__(self, name: str, variables: Mapping[str, str]) -> None:
        self.variables = {**variables}
        self.environment = read_at_start(variables)
        self.path = f"{_SESSION.name}/{name}"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(self.path)
        self._listener.listen(100)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        select.select([self._listener], [], [])
        lifeline, self._other_end = os.pipe()
        words = [sys.executable, str(HERE / "server.py"), str(self._listener.fileno()), str(lifeline)]
        given = [self._listener.fileno(), lifeline]
        self._process = subprocess.Popen(words, env=self.variables, pass_fds=given, stdin=subprocess.DEVNULL)
        os.close(lifeline)
        self._listener.close()


# For FORKED_IMPORTS: trainings on ranks that save, and pay for these imports in every rank.
CHECKPOINTS = "torch.distributed.checkpoint.state_dict,numpy"
# Of a plain process, one that vivace measures, one rank of a training that vivace splits, and one that saves.
_STARTS: dict[str, dict[str, str]] = {
    "plain": {}, "measured": {"KINETO_LOG_LEVEL": "99"}, "rank": {"PYTHONHASHSEED": "0"},
    "measured-rank": {"KINETO_LOG_LEVEL": "99", "PYTHONHASHSEED": "0"}, "saves": {"FORKED_IMPORTS": CHECKPOINTS},
}  # fmt: skip
_SERVERS = [_Server(name, environment(**more)) for name, more in _STARTS.items()]


def _stand_in() -> str:
    """The path of an executable that takes a script as Python does."""
    path = Path(_SESSION.name, "python")
    start = {
        "python": sys.executable, "stand_in": str(path), "vivace_variable": VARIABLE,
        "servers": [
            {"socket": server.path, "environment": read_at_start(server.variables, READ_LATER + OF_LAUNCHERS)}
            for server in _SERVERS
        ],
    }  # fmt: skip
    path.write_text(
        f"#!{sys.executable} -IS\nimport sys\nsys.path.insert(0, {str(HERE)!r})\nfrom stand_in import main\n"
        f"main(sys.argv[1:], {start!r})\n"
    )
    path.chmod(0o755)
    return str(path)


PYTHON = _stand_in()
"""As ``sys.executable`` for what vivace, torchrun, srun or a shell start, without the seconds of ``import torch``."""


def _server_with(variables: Mapping[str, str]) -> _Server | None:
    given = read_at_start(variables)
    return next((server for server in _SERVERS if server.environment == given), None)


def can_fork(command: Sequence[str], variables: Mapping[str, str], folder: Path | str = ".") -> bool:
    """A script or module for this Python, unless it could tell a difference.

    Libraries read variables when they are loaded: with others it needs a fresh process. So does what is compiled: the
    template has loaded torch.compile's front end, and vivace comes in before that.
    """
    if command[0] != sys.executable or _server_with(variables) is None:
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
        process_group: int | None = None,  # it always has one of its own
    ) -> None:
        self.returncode: int | None = None
        with contextlib.ExitStack() as ours_no_longer:
            self.stdin, given = _ends(stdin, 0, ours_no_longer)
            self.stdout, out = _ends(stdout, 1, ours_no_longer)
            self.stderr, err = _ends(stderr, 2, ours_no_longer)
            server = _server_with(env)
            assert server is not None, "ask can_fork() first"
            self._channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._channel.connect(server.path)
            folder = str(cwd or os.getcwd())
            ask(self._channel, command[1:], folder, env, [given, out, err], UNBUFFERED in env)
        self.pid = int(self._channel.recv(100))

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._channel], [], [], 0)[0]:
            self.returncode = int(self._channel.recv(100))
            self._channel.close()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            select.select([self._channel], [], [], timeout)
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
