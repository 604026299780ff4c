"""The machine that a request means: a cluster of the catalogue, one from the user's file, or a GPU.

Called by the CLI.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

from vivace.errors import UserError
from vivace.files import read_user_text
from vivace.hardware.specs import ClusterSpec
from vivace.plan.answering.request import Request
from vivace.plan.facts.limits import at_least
from vivace.plan.machines.cluster import Site, machine_for, machine_from_gpu
from vivace.plan.machines.gpu_names import known_gpu

__all__ = ["find_site"]


def find_site(request: Request) -> Site:
    at_least("--gpus-per-node", request.gpus_per_node, 1)
    site = _found_site(request)
    _check_size(request.gpus, site.cluster)
    return site


def _check_size(gpus: int, cluster: ClusterSpec | None) -> None:
    """As ``vivace submit`` refuses it; a cluster of unknown size takes any number."""
    if cluster is None or cluster.gpus_in_total is None or gpus <= cluster.gpus_in_total:
        return
    nodes = -(-gpus // cluster.gpus_per_node)
    raise UserError(
        f"{gpus} GPUs need {nodes} nodes, and {cluster.key} has {cluster.nodes}",
        hint=f"at most --gpus {cluster.gpus_in_total}",
    )


def _found_site(request: Request) -> Site:
    if request.cluster and request.cluster.endswith(".toml"):
        return machine_for(_cluster_of_file(Path(request.cluster)))
    if request.cluster:
        return machine_for(request.cluster)
    if not request.gpu:
        raise UserError("no cluster and no GPU is given", hint="use --cluster NAME or --gpu NAME")
    return machine_from_gpu(known_gpu(request.gpu), min(request.gpus_per_node, max(1, request.gpus)))


def _cluster_of_file(path: Path) -> str:
    """The first ``[cluster.NAME]`` of a user's file, which joins the catalogue for the rest of this
    process.
    """
    try:
        names = list(tomllib.loads(read_user_text(path)).get("cluster", {}))
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path} cannot be read: {error}", hint="see the head of vivace/hardware/catalogue.py"
        ) from None
    if not names:
        raise UserError(f"{path} has no [cluster.NAME] entry", hint="see the head of vivace/hardware/catalogue.py")
    listed = os.environ.get("VIVACE_CATALOGUE", "")
    os.environ["VIVACE_CATALOGUE"] = f"{path}{os.pathsep}{listed}" if listed else str(path)
    return str(names[0])
