"""``vivace`` in this process instead of one of its own: the same command line, output and exit code.

The scripts that it starts run in forked processes (``process.py``). Everything between is vivace's own code.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any
from unittest.mock import patch

from forked.process import ForkedProcess, can_fork

from vivace.chaos import life as chaotic
from vivace.cli.app import main
from vivace.labs import running as labs
from vivace.measure import command as measured
from vivace.race import watching
from vivace.tune import running

__all__ = ["forked_scripts", "vivace_here"]

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGCONT)


def _popen(command: Sequence[str], env: Mapping[str, str], cwd: Path | None = None, **more: Any) -> Any:
    forks = can_fork(command, env, cwd or Path.cwd())
    return (ForkedProcess if forks else subprocess.Popen)(command, env=env, cwd=cwd, **more)


@contextlib.contextmanager
def forked_scripts() -> Iterator[None]:
    """Inside, the scripts that vivace measures or changes are forked."""
    with contextlib.ExitStack() as stack:
        for module in (measured, running, watching, chaotic, labs):
            stack.enter_context(
                patch.object(module, "subprocess", SimpleNamespace(**{**vars(subprocess), "Popen": _popen}))
            )
        yield


def vivace_here(arguments: Sequence[str], cwd: Path, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """As ``subprocess.run([sys.executable, "-m", "vivace", *arguments], capture_output=True, text=True, …)``."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        with (
            contextlib.chdir(cwd),
            patch.dict(os.environ, env, clear=True),
            patch.object(sys, "argv", ["vivace", *arguments]),
            _output_to(out, err),
            _signal_handlers_kept(),
            forked_scripts(),
        ):
            code = _exit_code_of_main()
        printed = [(file.seek(0), file.read().decode())[1] for file in (out, err)]
    return subprocess.CompletedProcess(arguments, code, *printed)


def _exit_code_of_main() -> int:
    try:
        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


@contextlib.contextmanager
def _signal_handlers_kept() -> Iterator[None]:
    """A vivace that is about to end leaves some of its own behind."""
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _output_to(out: IO[bytes], err: IO[bytes]) -> Iterator[None]:
    """Also what other processes write: files 1 and 2 are replaced, not only ``sys.stdout`` and ``sys.stderr``."""
    streams, own = (sys.stdout, sys.stderr), (os.dup(1), os.dup(2))
    for number, file in ((1, out), (2, err)):
        os.dup2(file.fileno(), number)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", encoding="utf-8", closefd=False) for number in (1, 2))
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        sys.stdout, sys.stderr = streams
        for number, file in zip((1, 2), own, strict=True):
            os.dup2(file, number)
            os.close(file)
