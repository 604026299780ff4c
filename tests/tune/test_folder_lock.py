"""One process at a time in a run's folder; a killed one holds nothing."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from vivace.errors import UserError
from vivace.tune.folder_lock import LOCK, held

HOLDS = """
import sys, time
from pathlib import Path
from vivace.tune.folder_lock import held
with held(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_second_process_is_refused_until_the_first_is_gone_even_killed(tmp_path: Path):
    with subprocess.Popen([sys.executable, "-c", HOLDS, str(tmp_path)], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with (
            pytest.raises(UserError, match=f"is in use by process {other.pid} on {socket.gethostname()}"),
            held(tmp_path),
        ):
            pass
        other.send_signal(signal.SIGKILL)
    with held(tmp_path):
        assert (tmp_path / LOCK).read_text() == f"{socket.gethostname()} {os.getpid()}\n"
    assert (tmp_path / LOCK).read_text() == ""


def no_locks(*_: object) -> None:
    raise OSError(38, "Function not implemented")


@pytest.mark.parametrize(
    ("holder", "free"),
    [
        ("", True),
        (f"{socket.gethostname()} {os.getpid()}", False),
        (f"{socket.gethostname()} 4194999", True),  # above every process number that Linux gives
        ("another-machine 1", False),
    ],
    ids=["nobody", "a process that runs", "one that is gone", "one elsewhere"],
)
def test_without_locks_the_process_that_the_file_names_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, holder: str, free: bool
):
    (tmp_path / LOCK).write_text(holder)
    monkeypatch.setattr(fcntl, "flock", no_locks)  # a file system that has none cannot be mounted here
    if free:
        with held(tmp_path):
            pass
    else:
        with pytest.raises(UserError, match="is in use by"), held(tmp_path):
            pass


def test_a_folder_that_is_not_there_is_one_sentence(tmp_path: Path):
    with pytest.raises(UserError, match="No such file or directory"), held(tmp_path / "no"):
        pass
