"""A real PostgreSQL in a folder of its own, for studies on a database; where it is not installed, tests skip."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

USER = "postgres"  # the server refuses to run as root


def programs() -> Path | None:
    """Where initdb and pg_ctl are: Debian keeps them off the PATH."""
    found = shutil.which("pg_ctl")
    if found:
        return Path(found).resolve().parent
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))
    return versions[-1].parent if versions else None


@contextlib.contextmanager
def server(folder: Path) -> Iterator[str]:
    """The URL of an empty database; only a socket in ``folder`` leads there."""
    bin_ = programs()
    assert bin_ is not None
    as_user = ["runuser", "-u", USER, "--"] if os.getuid() == 0 else []
    folder.mkdir()
    if as_user:
        shutil.chown(folder, USER)
    data, options = str(folder / "data"), f"-c listen_addresses='' -c unix_socket_directories='{folder}' -c fsync=off"

    def run(*words: str) -> None:
        subprocess.run([*as_user, *words], check=True, cwd=folder, stdout=subprocess.DEVNULL)

    run(str(bin_ / "initdb"), "-D", data, "-A", "trust", "-U", "postgres", "--no-sync")
    run(str(bin_ / "pg_ctl"), "-D", data, "-l", str(folder / "log"), "-o", options, "-w", "start")
    try:
        yield f"postgresql://postgres@/postgres?host={folder}"
    finally:
        run(str(bin_ / "pg_ctl"), "-D", data, "-m", "immediate", "stop")
