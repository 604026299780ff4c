"""Where a study is kept: the journal in its folder, or any database that Optuna knows by a URL."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from vivace.errors import UserError

if TYPE_CHECKING:
    from optuna.storages import BaseStorage

__all__ = ["JOURNAL", "check_optuna", "open_storage", "quiet_optuna"]

JOURNAL = "journal.log"
_PACKAGES = {"psycopg": "'psycopg[binary]'", "psycopg2": "psycopg2-binary", "MySQLdb": "mysqlclient"}  # of drivers


def check_optuna() -> None:
    try:
        import optuna  # noqa: F401
    except ImportError:
        raise UserError("vivace hpo needs Optuna", hint="pip install 'vivace[hpo]'") from None


def open_storage(folder: Path, url: str | None = None) -> BaseStorage:
    """``url=None``: the journal. A ``UserError`` when a database cannot be reached."""
    check_optuna()
    quiet_optuna()
    from optuna.storages import JournalStorage, get_storage

    if url is None:
        from vivace.hpo.journal import RepairingJournal

        return JournalStorage(RepairingJournal(folder / JOURNAL))
    with _clear_errors(url):
        return get_storage(url)


@contextlib.contextmanager
def _clear_errors(url: str) -> Iterator[None]:
    """A password in the URL is not shown."""
    scheme = url.partition(":")[0]
    if "://" not in url:
        raise UserError(f"--storage {url!r} is not a URL", hint="postgresql://user@host/database; default: a journal")
    try:
        yield
    except ImportError as error:
        package = _PACKAGES.get(str(error.name), str(error.name))
        raise UserError(f"the driver for {scheme} is not installed", hint=f"pip install {package}") from None
    except Exception as error:  # sqlalchemy has dozens of them, one set for each driver
        said = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise UserError(f"the study's database ({scheme}) cannot be used: {said}") from None


def quiet_optuna() -> None:
    """vivace tells what happens; Optuna's lines for each trial and its notes on experimental classes are left out."""
    import optuna

    optuna.logging.set_verbosity(logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
