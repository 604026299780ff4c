"""vivace makes PyTorch training fast and proves it, from a laptop to a Slurm supercomputer.

Importing it is free: nothing heavy (torch, pydantic) is loaded until a name is used.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers know the name; typing itself takes a while to import, and Ctrl-C may come
if TYPE_CHECKING:
    from typing import Any

    from vivace.measure.chronometer import Chronometer as Chronometer

__all__ = ["Chronometer", "__version__"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name == "Chronometer":
        from vivace.measure.chronometer import Chronometer

        return Chronometer
    raise AttributeError(f"module 'vivace' has no attribute {name!r}")
