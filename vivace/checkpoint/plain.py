"""Values that are no tensors, as bytes that are read again without running anything (``weights_only``).

What could not be read again is refused when it is saved, not when it is needed.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

import torch

__all__ = ["from_bytes", "to_bytes"]


def to_bytes(value: Any, name: str) -> bytes:
    """Raises ``TypeError`` for more than tensors and plain values (numbers, texts, lists, tuples, dicts)."""
    file = io.BytesIO()
    try:
        torch.save(value, file)
        from_bytes(file.getvalue())
    except (pickle.PicklingError, pickle.UnpicklingError, AttributeError) as error:
        raise TypeError(
            f"{name} holds more than tensors and plain values, so it could not be loaded again safely: "
            f"{str(error).strip().splitlines()[0]}"
        ) from error
    return file.getvalue()


def from_bytes(data: bytes) -> Any:
    """Raises ``pickle.UnpicklingError``."""
    return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
