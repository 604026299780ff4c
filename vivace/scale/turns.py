"""Files that the script adds to: the other ranks take their copy before rank 0 writes.

``open(path, "a")`` and a SQLite database keep what a file holds. A rank that copied it a moment after rank 0 had
written would have rank 0's new lines in it, beside its own.
"""

from __future__ import annotations

import builtins
import io
import os
import sqlite3
from typing import Any

from vivace.measure.inside.patches import in_place_of
from vivace.scale.callers import called_by_script
from vivace.scale.group import Group

__all__ = ["take_turns"]

_KEEPS = frozenset("a+")


def take_turns(group: Group) -> None:
    """On every rank, after the files of the others are apart."""
    seen: set[str] = set()

    def first(path: Any) -> bool:
        if not isinstance(path, (str, bytes, os.PathLike)) or path in ("", ":memory:"):
            return False
        name = os.path.abspath(os.fsdecode(path))
        new = name not in seen
        seen.add(name)
        return new

    def in_turn(open_it: Any) -> Any:
        if group.rank == 0:
            group.wait_for_all()
            return open_it()
        try:
            return open_it()
        finally:
            group.wait_for_all()

    own_open, own_connect = builtins.open, sqlite3.connect

    def open_(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if _KEEPS.intersection(mode) and called_by_script(1) and first(file):
            return in_turn(lambda: own_open(file, mode, *args, **kwargs))
        return own_open(file, mode, *args, **kwargs)

    def connect(database: Any, *args: Any, **kwargs: Any) -> Any:
        if called_by_script(1) and first(database):
            return in_turn(lambda: own_connect(database, *args, **kwargs))
        return own_connect(database, *args, **kwargs)

    builtins.open = io.open = in_place_of(own_open, open_)
    sqlite3.connect = sqlite3.dbapi2.connect = in_place_of(own_connect, connect)
