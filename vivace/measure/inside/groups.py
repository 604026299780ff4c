"""Which dimension of a layout a process group is: by its description, which a device mesh makes from its names."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from vivace.measure.inside.steps.timeline import ALL_RANKS

__all__ = ["ALL_RANKS", "dimension", "dimension_of", "several_ranks", "world_size"]

_OF_A_MESH = "mesh_"


def world_size() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def several_ranks() -> bool:
    return world_size() > 1


def dimension_of(group: Any) -> str:
    """``tensor`` for the group of a mesh's axis of that name; else which ranks it has. None is the default group."""
    if group is None:
        return ALL_RANKS
    try:
        if not isinstance(group, dist.ProcessGroup):
            group = group.get_group()  # a device mesh of one axis
        return dimension(getattr(group, "group_desc", ""), group.size(), dist.get_world_size())
    except (RuntimeError, ValueError, AttributeError):
        return ALL_RANKS


def dimension(description: str, ranks: int, world: int) -> str:
    """
    >>> dimension("mesh_tensor", 2, 4), dimension("default_pg", 4, 4), dimension("undefined", 2, 4)
    ('tensor', 'all ranks', 'groups of 2')
    """
    name = description[len(_OF_A_MESH) :] if description.startswith(_OF_A_MESH) else ""
    if name and name != "default" and not name.startswith("dim_"):
        return name
    return ALL_RANKS if ranks >= world else f"groups of {ranks}"
