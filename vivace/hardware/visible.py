"""Which GPUs a process sees, and in which order: the rules of ``CUDA_VISIBLE_DEVICES``.

Pure functions on text; called by ``hardware.gpu``, and by whoever must tell which physical GPU ``cuda:0`` is.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["visible_indices"]


def visible_indices(setting: str | None, uuids: Sequence[str]) -> list[int]:
    """The machine's GPU indices in the order in which CUDA numbers them; ``setting`` is the variable's value.

    As in CUDA: not set shows all; a word is an index or the beginning of a UUID; the first word that names no
    GPU hides itself and all after it; a GPU named twice hides all.

    >>> visible_indices("2,0", ["GPU-a", "GPU-b", "GPU-c"])
    [2, 0]
    >>> visible_indices("GPU-b,-1,0", ["GPU-a", "GPU-b", "GPU-c"])
    [1]
    """
    if setting is None:
        return list(range(len(uuids)))
    chosen: list[int] = []
    for word in setting.split(","):
        index = _index_of(word.strip(), uuids)
        if index is None:
            break
        if index in chosen:
            return []
        chosen.append(index)
    return chosen


def _index_of(word: str, uuids: Sequence[str]) -> int | None:
    if word.startswith("GPU-"):
        named = [index for index, uuid in enumerate(uuids) if uuid.startswith(word)]
        return named[0] if len(named) == 1 else None
    if not (word.isascii() and word.isdigit()):
        return None
    return int(word) if int(word) < len(uuids) else None
