"""Makes two runs comparable: the same seed for both, and another one for each pair of runs.

A script that never seeds itself is seeded; one that does keeps its seed plus the pair's offset. Frameworks' own
functions (Lightning's ``seed_everything``, transformers' ``set_seed``) call the ones replaced here. With offset 0 the
script's own seeds are untouched.

Left alone: generators that the script makes itself (``torch.Generator``, ``default_rng``, ``RandomState``,
``random.Random``), because they often define the data; seeds from the clock (``random.seed()``); and functions that
were imported by name before torch (``from random import seed``).
"""

from __future__ import annotations

import operator
import random
import sys
import threading
from collections.abc import Callable
from typing import Any

import torch

from vivace.measure.inside.patches import in_place_of

__all__ = ["install"]

_FIRST_SEED = 1  # what a script without a seed gets, plus the offset
_TORCH_RANGE = (-(2**63), 2**64)  # what torch.manual_seed takes, the end excluded
_NUMPY_RANGE = (0, 2**32)

Shift = Callable[[Any, int], Any]


def install(offset: int) -> None:
    _seed_everything(_FIRST_SEED + offset)
    if offset == 0:
        return
    for module in _torch_modules():
        for name in ("manual_seed", "manual_seed_all"):
            if hasattr(module, name):
                _replace(module, name, "seed", shift_torch_seed, offset)
    torch.random.manual_seed = torch.manual_seed
    _replace(random, "seed", "a", shift_python_seed, offset)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        _replace(numpy.random, "seed", "seed", shift_numpy_seed, offset)


def _seed_everything(seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % _NUMPY_RANGE[1])


def _torch_modules() -> list[Any]:
    """``torch`` itself, and the devices that can be seeded apart from it."""
    devices = [getattr(torch, name, None) for name in ("cuda", "mps", "xpu", "mtia")]
    return [torch, *(device for device in devices if device is not None)]


_running = threading.local()  # torch.manual_seed calls torch.cuda.manual_seed_all: shift once


def _replace(module: Any, name: str, parameter: str, shift: Shift, offset: int) -> None:
    original = getattr(module, name)

    def seed(*args: Any, **kwargs: Any) -> Any:
        if getattr(_running, "seed", False):
            return original(*args, **kwargs)
        if args:
            args = (shift(args[0], offset), *args[1:])
        elif parameter in kwargs:
            kwargs = {**kwargs, parameter: shift(kwargs[parameter], offset)}
        _running.seed = True
        try:
            return original(*args, **kwargs)
        finally:
            _running.seed = False

    setattr(module, name, in_place_of(original, seed))


# A value that the original function would not take is handed on as it is: the error is then its own.


def shift_torch_seed(value: Any, offset: int) -> Any:
    """torch takes whatever ``int`` takes: numbers of numpy, tensors of one element.

    >>> shift_torch_seed(2**64 - 1, 2), shift_torch_seed(-1, 2), shift_torch_seed(2**70, 2) == 2**70
    (1, 1, True)
    """
    try:
        number = int(value)
    except Exception:
        return value
    low, high = _TORCH_RANGE
    if not low <= number < high:
        return value
    return number + offset if number + offset < high else number + offset - high


def shift_numpy_seed(value: Any, offset: int) -> Any:
    """Integers below 2**32 stay below it; of several integers, one more makes another seed.

    >>> shift_numpy_seed(2**32 - 1, 2), shift_numpy_seed([1, 2], 3)
    (1, [1, 2, 3])
    """
    number = _whole_number(value)
    if number is not None:
        low, high = _NUMPY_RANGE
        return (number + offset) % high if low <= number < high else value
    try:
        numbers = [_whole_number(one) for one in value]
    except TypeError:
        return value
    return [*numbers, offset] if numbers and None not in numbers else value


def shift_python_seed(value: Any, offset: int) -> Any:
    """``random.seed`` takes numbers of any size and text.

    >>> shift_python_seed(7, 2), shift_python_seed("seven", 2), shift_python_seed(None, 2)
    (9, 'seven+2', None)
    """
    number = _whole_number(value)
    if number is not None:
        return number + offset
    if isinstance(value, float):
        return value + offset
    if isinstance(value, str):
        return f"{value}+{offset}"
    if isinstance(value, (bytes, bytearray)):
        return bytes(value) + f"+{offset}".encode()
    return value


def _whole_number(value: Any) -> int | None:
    """Of an int, a bool, a number of numpy, or an integer tensor of one element."""
    try:
        return operator.index(value)
    except Exception:
        return None
