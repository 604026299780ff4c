"""Small studies for tests: commands of a few milliseconds, without torch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vivace.hpo.asked import Asked, write_asked
from vivace.hpo.space import Real

SCRIPTS = Path(__file__).parent / "scripts"


@pytest.fixture
def asked(tmp_path: Path) -> Callable[..., Asked]:
    """A search on Himmelblau's function, written to ``tmp_path``."""

    def make(**changes: Any) -> Asked:
        made = Asked(**{
            "name": "study",
            "command": (sys.executable, "-IS", str(SCRIPTS / "himmelblau.py"), "{x}", "{y}", "{seed}"),
            "cwd": str(tmp_path),
            "goal": "min val_loss",
            "reals": (Real("x", -5.0, 5.0), Real("y", -5.0, 5.0)),
            "order": ("x", "y"),
            "trials": 5,
            "confirm_seeds": 0,
            **changes,
        })  # fmt: skip
        write_asked(tmp_path, made)
        return made

    return make
