"""What a command of the user's needs to start with, so that vivace gets into its Python processes.

``vivace run`` imports this and little more before it starts the training: it must not import what takes long.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path

from vivace.errors import UserError
from vivace.protocol.request import HOME_VARIABLE, VARIABLE, ProcessRequest

__all__ = ["command_not_found", "environment_for"]

_BOOTSTRAP = Path(__file__).parent / "bootstrap"


def command_not_found(word: str, ours: str) -> UserError:
    """``word``: the first of the user's command; ``ours``: the sub-command of vivace."""
    hint = f"without the quotes: vivace {ours} -- {word}" if " " in word else f"vivace {ours} -- python train.py …"
    return UserError(f"command not found: {word}", hint=hint)


def environment_for(request: ProcessRequest, base: Mapping[str, str]) -> dict[str, str]:
    """``base`` with what lets vivace into every Python process of the command."""
    environment = dict(base)
    path = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = os.pathsep.join([str(_BOOTSTRAP), path] if path else [str(_BOOTSTRAP)])
    environment[VARIABLE] = request.to_text()
    environment[HOME_VARIABLE] = os.pathsep.join(_homes())
    if request.measure:
        environment.setdefault("KINETO_LOG_LEVEL", "99")  # our profiler window is not the script's: keep its log away
        environment.setdefault("PYTHONUNBUFFERED", "1")  # a pipe would hold the script's output back
    return environment


def _homes() -> list[str]:
    """Where the process may borrow vivace and pynvml from, if its own environment lacks them."""
    homes = [str(Path(__file__).parents[2])]
    found = importlib.util.find_spec("pynvml")
    if found is not None and found.origin is not None:
        homes.append(str(Path(found.origin).parent))
    return homes
