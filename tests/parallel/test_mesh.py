"""The meshes of a layout: groups are named after their axis, and no group is made twice."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from benchmarks.forked_ranks import on_ranks
from vivace.parallel.mesh import make_meshes
from vivace.records.layout import parse_layout


def groups_of(layout: str, world: int) -> tuple[dict[str, Any], int]:
    def work() -> Any:
        meshes = make_meshes(parse_layout(layout))
        axes = {name: meshes.weights[name] for name in ("pipeline", "data", "shard", "tensor")}
        axes["context"] = meshes.context
        found = {name: axis.get_group().group_desc for name, axis in axes.items() if axis.size() > 1}
        return found, len(dist.distributed_c10d._world.pg_map)

    return on_ranks(world, work)[0]


def test_an_axis_over_all_ranks_takes_the_default_group_under_its_name():
    """Two groups: that one, and a rank alone for all axes of one."""
    assert groups_of("tp2", 2) == ({"tensor": "mesh_tensor"}, 2)


def test_context_and_gradients_do_not_queue_in_one_group():
    assert groups_of("cp2", 2) == ({"data": "mesh_data", "context": "mesh_context"}, 3)


def test_both_meshes_share_their_groups():
    """All ranks, a rank alone, data and tensor."""
    assert groups_of("dp2,tp2", 4) == ({"data": "mesh_data", "tensor": "mesh_tensor"}, 4)
