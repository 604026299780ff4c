"""The few things of the command itself that cannot be done without torch say so in one sentence."""

from __future__ import annotations

import importlib.util
import sys

from vivace.errors import UserError

__all__ = ["INSTALL_TORCH", "need_torch"]

INSTALL_TORCH = "pip install 'vivace[torch]'"


def need_torch(what: str, instead: str | None = None) -> None:
    """``what`` needs torch in this process. ``instead``: what else the user could do. Raises ``UserError``."""
    if importlib.util.find_spec("torch") is None:
        hint = f"{INSTALL_TORCH}, or {instead}" if instead else INSTALL_TORCH
        raise UserError(f"{what} needs torch, which this Python does not have ({sys.executable})", hint=hint)
