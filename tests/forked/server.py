"""A Python that has imported torch already, and forks a process for each script that a stand-in for Python asks for.

    python server.py LISTENER LIFELINE

A connection (``process.py``, ``stand_in.py``) brings the words, folder, environment and files of one script. Numbers
that follow are signals for it. The answers are its process id and its exit code. A script is killed when the process
that asked for it is. When the other end of the pipe LIFELINE is closed, the tests are over: the server ends, and
so does every script, also a rank whose torchrun was killed.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import select
import signal
import socket
import sys
from typing import Any

import template


def main(listener: socket.socket, lifeline: int) -> list[str] | None:
    """Returns in the scripts' processes, with the words that follow ``python``; in this one at the end, with None."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # those of the tests, which this process serves to their end
    paths, set_by_torch = template.paths_of_this_python(), template.import_torch()
    while lifeline not in select.select([listener, lifeline], [], [])[0]:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            return _keep(connection, lifeline, paths, set_by_torch)
        connection.close()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
    return None


def _keep(connection: socket.socket, lifeline: int, paths: list[str], set_by_torch: dict[str, str]) -> list[str]:
    """Starts the script and follows it to its end; returns in the script's process."""
    message, files, _, _ = socket.recv_fds(connection, 2**20, 3)
    asked = json.loads(message)
    child = os.fork()
    if child == 0:
        connection.close()
        os.close(lifeline)
        _signals_as_after_a_start(asked["ignored"])
        template.become(asked["words"], asked["folder"], {**set_by_torch, **asked["environment"]}, files, paths)
        if asked["unbuffered"]:
            sys.stdout, sys.stderr = _unbuffered(sys.stdout), _unbuffered(sys.stderr)
        return asked["words"]
    for file in files:
        os.close(file)
    connection.send(str(child).encode())
    _follow(connection, child, lifeline)
    os._exit(0)


def _follow(connection: socket.socket, child: int, lifeline: int) -> None:
    ended = os.pidfd_open(child)
    while ended not in (ready := select.select([connection, ended, lifeline], [], [])[0]):
        number = connection.recv(100) if connection in ready else b""
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, int(number) if number else signal.SIGKILL)
        if not number:  # who asked for it was killed, or the tests are over
            break
    _, status = os.waitpid(child, 0)
    with contextlib.suppress(OSError):
        connection.send(str(os.waitstatus_to_exitcode(status)).encode())


def _signals_as_after_a_start(ignored: list[int]) -> None:
    """In a session of its own: signals come by the connection alone."""
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


def _unbuffered(stream: Any) -> Any:
    """As ``python -u`` opens it."""
    raw = io.FileIO(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(raw, stream.encoding, stream.errors, write_through=True)


if __name__ == "__main__":
    this_module = sys.modules["__main__"]  # stays alive while another module has its name
    words_after_python = main(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))
    if words_after_python is not None:
        template.run_main(words_after_python)
