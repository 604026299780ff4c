"""``torch`` for the files of the practices. They are read on both sides, and the command's own side may not have torch.

In the user's process torch is there already, and this is the module itself. In the command it is a stand-in that
imports torch when something of it is first used; finding, pricing and choosing practices use nothing of it.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

__all__ = ["torch"]


class _Later:
    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module("torch"), name)


if TYPE_CHECKING:
    import torch
elif "torch" in sys.modules:
    torch = sys.modules["torch"]
else:
    torch = _Later()
