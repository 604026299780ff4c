"""Stands in for ``python`` in commands that tests start: the script runs in a process forked by ``server.py``.

A training that is started by torchrun, by srun or by a shell, and measured from outside, needs a program to start. This
one needs no torch: it sends what it was started with, passes signals on, and ends as the script does. Where the script
could tell a difference, it becomes the real Python. Standard library only.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import socket
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

# Variables that are read by the bootstrap, by the script, when CUDA starts or when something is compiled or exchanged:
# always after the fork.
READ_LATER = (
    "VIVACE_", "PYTHONPATH", "PYTEST_", "PWD", "CUDA_VISIBLE_DEVICES", "TORCHINDUCTOR_CACHE_DIR", "RANK", "WORLD_SIZE",
    "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MEETING", "PLANTED", "PYTHON_EXEC", "WANDB_MODE", "PET_",
)  # fmt: skip
OF_LAUNCHERS = (
    "MASTER_", "TORCHELASTIC_", "TORCH_NCCL_", "GROUP_", "ROLE_", "SLURM", "SBATCH", "SRUN", "PMI",
    "OLDPWD", "SHLVL", "_", "TMPDIR", "HOSTNAME", "ENVIRONMENT", "GPU_DEVICE_ORDINAL", "ROCR_VISIBLE_DEVICES",
)  # fmt: skip
UNBUFFERED = "PYTHONUNBUFFERED"
COMPILES = re.compile(r"\bcompile\b")
LAUNCHERS = ("torch.distributed.run",)
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP)


def read_at_start(variables: Mapping[str, str], later: tuple[str, ...] = READ_LATER) -> dict[str, str]:
    return {name: value for name, value in variables.items() if name != UNBUFFERED and not name.startswith(later)}


def ask(
    connection: socket.socket,
    words: Sequence[str],
    folder: str,
    variables: Mapping[str, str],
    files: Sequence[int],
    unbuffered: bool,
    ignored: Sequence[int] = (),
) -> None:
    """``files``: its stdin, stdout and stderr. ``ignored``: signals that it is started with ignoring."""
    asked = {
        "words": list(words), "folder": folder, "environment": dict(variables), "unbuffered": unbuffered,
        "ignored": [int(number) for number in ignored],
    }  # fmt: skip
    socket.send_fds(connection, [json.dumps(asked).encode()], files)


def main(words: list[str], start: dict[str, Any]) -> None:
    """``start``: of the test session. The real Python, this stand-in, the name of vivace's variable, and of each server
    its socket and the environment that it was started with."""
    unbuffered = UNBUFFERED in os.environ or words[:1] == ["-u"]
    script = words[1:] if words[:1] == ["-u"] else words
    path = _server_for(script, start)
    if path is None:
        os.execv(start["python"], [start["python"], *words])
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(path)
    ignored = [number for number in PASSED_ON if signal.getsignal(number) == signal.SIG_IGN]
    variables = {**os.environ, "PYTHON_EXEC": start["stand_in"]} if script[0] == "-m" else os.environ  # for torchrun
    signals = _collect(set(PASSED_ON).difference(ignored))
    ask(connection, script, os.getcwd(), variables, [0, 1, 2], unbuffered, ignored)
    connection.recv(100)  # its process id
    _end_as(_wait(connection, signals))


def _collect(numbers: Iterable[int]) -> socket.socket:
    """Gives a byte for each of these signals: a handler alone may run too late, when this process already waits."""
    signals, written = socket.socketpair()
    written.setblocking(False)
    signal.set_wakeup_fd(os.dup(written.fileno()))
    for number in numbers:
        signal.signal(number, lambda *_: None)
    return signals


def _wait(connection: socket.socket, signals: socket.socket) -> int:
    """Passes signals on to the script until it ends. Returns its exit code."""
    while connection not in (ready := select.select([connection, signals], [], [])[0]):
        for number in signals.recv(100) if ready else b"":
            connection.send(str(number).encode())
    return int(connection.recv(100) or -signal.SIGKILL)


def _server_for(words: list[str], start: dict[str, Any]) -> str | None:
    """The socket of one whose processes look to the script as a fresh one does."""
    if not words or not _can_fork(words, start["vivace_variable"]):
        return None
    given = read_at_start(os.environ, READ_LATER + OF_LAUNCHERS)
    return next((server["socket"] for server in start["servers"] if server["environment"] == given), None)


def _can_fork(words: list[str], vivace_variable: str) -> bool:
    is_module = words[0] == "-m" and len(words) > 1
    if is_module and words[1] in LAUNCHERS:
        return True
    path = f"{words[1].replace('.', '/')}.py" if is_module else words[0]
    if not path.endswith(".py") or not os.path.isfile(path):
        return False
    with open(path, encoding="utf-8") as file:
        return not COMPILES.search(file.read() + os.environ.get(vivace_variable, ""))


def _end_as(code: int) -> None:
    """With its exit code, or killed by the same signal."""
    if code >= 0:
        os._exit(code)
    if -code != signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
