"""Where a job goes: what a script must know of a partition, from the catalogue or from the queue itself.

Reads the catalogue (``vivace.hardware``) or asks ``sinfo``. Called by the CLI, the notebook functions and tests.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from vivace.errors import UserError
from vivace.hardware.catalogue import find_cluster
from vivace.hardware.specs import ClusterSpec, QosSpec, StorageSpec
from vivace.launch.slurm import call

__all__ = ["Target", "find_target"]

_NO_SLURM = (
    "name a cluster of the catalogue, --cluster NAME (`vivace hardware --clusters` lists them), "
    "or run on this machine, --launcher local"
)


@dataclass(frozen=True, kw_only=True)
class Target:
    """A partition of equal nodes. What is not known is None or empty, and is then left out of the script."""

    name: str
    gpus_per_node: int
    cores_per_gpu: int | None = None
    nodes: int | None = None
    partition: str | None = None
    constraint: str | None = None
    account_suffix: str | None = None
    options: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    qos: tuple[QosSpec, ...] = ()
    storage: tuple[StorageSpec, ...] = ()


def find_target(cluster: str | None, partition: str | None = None) -> Target:
    """The catalogue's cluster of that name; without a name, what Slurm says about ``partition`` or its default."""
    if cluster is not None:
        return _of_catalogue(find_cluster(cluster))
    try:
        told = call("sinfo", "--noheader", "--format=%P|%G|%c|%D").out
    except UserError as error:
        raise UserError(error.message, hint="; or ".join(filter(None, (error.hint, _NO_SLURM)))) from None
    return of_sinfo(told, partition)


def _of_catalogue(spec: ClusterSpec) -> Target:
    cores = spec.cores_per_gpu
    if cores is None and spec.cores_per_node is not None:
        cores = max(1, spec.cores_per_node // spec.gpus_per_node)
    return Target(
        name=spec.key,
        gpus_per_node=spec.gpus_per_node,
        cores_per_gpu=cores,
        nodes=spec.nodes,
        partition=spec.partition if spec.needs_partition_flag else None,
        constraint=spec.constraint,
        account_suffix=spec.account_suffix,
        options=spec.slurm_options,
        modules=spec.modules,
        qos=spec.qos_specs,
        storage=spec.storage,
    )


def of_sinfo(text: str, partition: str | None) -> Target:
    """The wanted (or default) partition of ``sinfo --format=%P|%G|%c|%D``, where GPUs are."""
    rows = [line.strip().split("|") for line in text.splitlines() if line.count("|") == 3]
    names = {row[0].rstrip("*") for row in rows}
    if partition is not None and partition not in names:
        raise UserError(
            f"this Slurm has no partition {partition!r}", hint=f"partitions: {', '.join(sorted(names)) or 'none'}"
        )
    for name, gres, cpus, nodes in rows:
        wanted = name.rstrip("*") == partition if partition else name.endswith("*")
        gpus = sum(int(count) for count in re.findall(r"gpu(?::[^:,(]+)?:(\d+)", gres))
        if wanted and gpus:
            bare, cores = name.rstrip("*"), int(re.sub(r"\D", "", cpus) or 0)
            return Target(
                name=f"partition {bare}",
                gpus_per_node=gpus,
                cores_per_gpu=max(1, cores // gpus) if cores else None,
                nodes=int(nodes),
                partition=bare,
            )
    raise UserError(
        f"no node of the {f'partition {partition!r}' if partition else 'default partition'} has GPUs",
        hint="name a --partition, or a --cluster of the catalogue (vivace hardware --clusters)",
    )
