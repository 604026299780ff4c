"""A study on a real PostgreSQL: the same laws as on the journal."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hpo.chaos import check_laws, run_chaos
from hpo.postgres import programs, server

from vivace.errors import UserError
from vivace.hpo.storage import open_storage


@pytest.mark.slow
@pytest.mark.skipif(programs() is None, reason="no PostgreSQL here: apt install postgresql")
def test_killed_workers_lose_nothing_on_postgresql(tmp_path: Path) -> None:
    pytest.importorskip("psycopg", reason="no driver for PostgreSQL here: pip install 'psycopg[binary]'")
    with tempfile.TemporaryDirectory(prefix="pg") as short:  # the path of a socket has at most 107 bytes
        os.chmod(short, 0o755)
        with server(Path(short) / "s") as url:
            chaos = run_chaos(tmp_path, trials=6, workers=2, kills=1, command_s=0.2, seed=2, storage=url)
            check_laws(chaos, tmp_path, trials=6)


def test_a_database_that_cannot_be_reached_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"the study's database \(postgresql\) cannot be used"):
        open_storage(tmp_path, f"postgresql://me@/db?host={tmp_path}")
    with pytest.raises(UserError, match="the driver for oracle is not installed"):
        open_storage(tmp_path, "oracle://me@host/db")
