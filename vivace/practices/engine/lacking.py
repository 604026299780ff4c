"""Which part of torch an error says is not there: an older or newer torch than the practice was written for."""

from __future__ import annotations

import re

__all__ = ["what_torch_lacks"]

# Python's own words. AttributeError has had the object and the name as fields since 3.10 only.
_NO_ATTRIBUTE = re.compile(r"(?:module|type object) '(torch[\w.]*)' has no attribute '(\w+)'")
_NO_NAME = re.compile(r"cannot import name '(\w+)' from '(torch[\w.]*)'")


def what_torch_lacks(error: Exception) -> str | None:
    """
    >>> what_torch_lacks(AttributeError("module 'torch.optim' has no attribute 'Adafactor'"))
    'torch.optim.Adafactor'
    >>> what_torch_lacks(AttributeError("'NoneType' object has no attribute 'shape'")) is None
    True
    """
    if isinstance(error, AttributeError) and (found := _NO_ATTRIBUTE.match(str(error))):
        return f"{found[1]}.{found[2]}"
    if isinstance(error, ModuleNotFoundError) and (error.name or "").startswith("torch."):
        return error.name
    if isinstance(error, ImportError) and (found := _NO_NAME.match(str(error))):
        return f"{found[2]}.{found[1]}"
    return None
