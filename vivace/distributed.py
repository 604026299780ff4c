"""Who am I among the ranks? The same answers under srun, under torchrun and alone; names as in IDRIS' ``idr_torch``::

    from vivace import distributed as idr_torch

    idr_torch.init_process_group()
    model = DistributedDataParallel(model.to(idr_torch.device))
    if idr_torch.is_master:
        print(idr_torch.summary())

``rank``, ``local_rank``, ``world_size`` (also ``size``), ``local_world_size``, ``num_nodes``, ``cpus``, ``gpu_ids``,
``nodelist`` (a list, always; also ``hostnames``), ``master_addr``, ``master_port``, ``is_master``, ``hostname`` and
``device`` are read when they are asked for.

Standard library and torch only. Reads the environment; ``init_process_group`` sets what torch reads.
"""

from __future__ import annotations

import gc
import os
import re
import secrets
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

__all__ = ["World", "destroy_process_group", "expand_nodelist", "init_process_group", "summary", "world"]

Launcher = Literal["slurm", "torchrun", "single"]
_this_start = ""
_ALIASES = {"size": "world_size", "ntasks": "world_size", "hostnames": "nodelist", "nnodes": "num_nodes"}


@dataclass(frozen=True)
class World:
    """What the launcher told this process."""

    launcher: Launcher
    rank: int
    local_rank: int
    world_size: int
    local_world_size: int
    num_nodes: int
    cpus: int
    gpu_ids: tuple[int, ...]
    nodelist: list[str]
    master_addr: str
    master_port: int
    hostname: str

    @property
    def is_master(self) -> bool:
        return self.rank == 0

    @property
    def device(self) -> Any:
        """The GPU of this rank, or the CPU. A rank that sees one GPU only (--gpus-per-task=1) has number 0."""
        import torch

        if not torch.cuda.is_available():
            return torch.device("cpu")
        return torch.device("cuda", self.local_rank % torch.cuda.device_count())


def world(environment: Mapping[str, str] | None = None) -> World:
    """torchrun's answers where torchrun started this process (perhaps under srun), then Slurm's, else alone."""
    env = os.environ if environment is None else environment
    if "TORCHELASTIC_RUN_ID" in env:
        return _of_torchrun(env)
    if "SLURM_STEP_ID" in env and "SLURM_PROCID" in env:
        return _of_slurm(env)
    return _alone(env)


def _of_slurm(env: Mapping[str, str]) -> World:
    nodes = expand_nodelist(env.get("SLURM_STEP_NODELIST") or env.get("SLURM_JOB_NODELIST") or socket.gethostname())
    size = int(env.get("SLURM_STEP_NUM_TASKS") or env.get("SLURM_NTASKS") or 1)
    per_node = expand_counts(env.get("SLURM_STEP_TASKS_PER_NODE") or env.get("SLURM_TASKS_PER_NODE") or str(size))
    return World(
        launcher="slurm",
        rank=int(env["SLURM_PROCID"]),
        local_rank=int(env.get("SLURM_LOCALID", "0")),
        world_size=size,
        local_world_size=per_node[min(int(env.get("SLURM_NODEID", "0")), len(per_node) - 1)],
        num_nodes=int(env.get("SLURM_STEP_NUM_NODES") or len(nodes)),
        cpus=int(env.get("SLURM_CPUS_PER_TASK") or _cores()),
        gpu_ids=_gpu_ids(env),
        nodelist=nodes,
        # Rank 0 is on the step's first node, which need not be the job's.
        master_addr=nodes[0],
        master_port=int(env.get("MASTER_PORT") or port_of_job(env.get("SLURM_JOB_ID", "0"))),
        hostname=socket.gethostname(),
    )


def _of_torchrun(env: Mapping[str, str]) -> World:
    size, local_size = int(env["WORLD_SIZE"]), int(env.get("LOCAL_WORLD_SIZE", env["WORLD_SIZE"]))
    nodes = -(-size // local_size)
    names = expand_nodelist(env["SLURM_JOB_NODELIST"]) if "SLURM_JOB_NODELIST" in env else [socket.gethostname()]
    return World(
        launcher="torchrun",
        rank=int(env["RANK"]),
        local_rank=int(env["LOCAL_RANK"]),
        world_size=size,
        local_world_size=local_size,
        num_nodes=nodes,
        cpus=max(1, _cores() // local_size),
        gpu_ids=_gpu_ids(env),
        nodelist=names,
        master_addr=env["MASTER_ADDR"],
        master_port=int(env["MASTER_PORT"]),
        hostname=socket.gethostname(),
    )


def _alone(env: Mapping[str, str]) -> World:
    return World(
        launcher="single",
        rank=0,
        local_rank=0,
        world_size=1,
        local_world_size=1,
        num_nodes=1,
        cpus=_cores(),
        gpu_ids=_gpu_ids(env),
        nodelist=[socket.gethostname()],
        master_addr="localhost",
        master_port=int(env.get("MASTER_PORT") or 12345),
        hostname=socket.gethostname(),
    )


def init_process_group(backend: str | None = None, **more: Any) -> None:
    """``torch.distributed.init_process_group`` with what the launcher told; does nothing the second time.

    NCCL with GPUs, gloo without. Sets the CUDA device and MASTER_ADDR, MASTER_PORT, RANK, LOCAL_RANK, WORLD_SIZE.
    """
    import torch
    import torch.distributed as dist

    if dist.is_initialized():
        return
    here = world()
    backend = backend or ("nccl" if torch.cuda.is_available() else "gloo")
    if torch.cuda.is_available():
        torch.cuda.set_device(here.device)
    if here.launcher == "single":  # nobody to meet: no port is opened
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1, **more)
        return
    for name, value in _variables(here).items():
        os.environ[name] = str(value)
    if _may_be_restarted(os.environ):
        store = _store_of_this_start(here, more.get("timeout") or timedelta(minutes=10))
        dist.init_process_group(backend, store=store, rank=here.rank, world_size=here.world_size, **more)
        return
    dist.init_process_group(backend, init_method="env://", rank=here.rank, world_size=here.world_size, **more)


def _may_be_restarted(env: Mapping[str, str]) -> bool:
    """By torchrun, whose own store then outlives the ranks: the same answer on all nodes."""
    most = env.get("TORCHELASTIC_MAX_RESTARTS", "0")
    return env.get("TORCHELASTIC_USE_AGENT_STORE") == "True" and most.isdigit() and int(most) > 0


def _store_of_this_start(here: World, timeout: timedelta) -> Any:
    """torchrun's store, without what ranks of an earlier start left in it: their addresses would be called.

    (torch 2.13 shares one store between all starts. The number of restarts in the environment is each node's own.)
    Rank 0 makes up a name. Every other rank asks with a word of its own, so that no earlier answer can be meant for it.
    """
    import torch.distributed as dist

    global _this_start
    store = dist.TCPStore(here.master_addr, here.master_port, here.world_size, is_master=False, timeout=timeout)
    names = dist.PrefixStore("vivace/starts", store)
    if here.rank == 0:
        _this_start = secrets.token_hex(8)
        _tell_all(names, here.world_size, time.monotonic() + timeout.total_seconds())
    else:
        word = secrets.token_hex(8)
        names.set(f"asks-{here.rank}", word)
        _this_start = names.get(word).decode()
        names.set(f"{_this_start}-{here.rank}", "")
    return dist.PrefixStore(f"vivace/start-{_this_start}", store)


def _tell_all(names: Any, ranks: int, until: float) -> None:
    missing = set(range(1, ranks))
    while missing:
        for rank in list(missing):
            if names.check([f"{_this_start}-{rank}"]):
                missing.discard(rank)
            elif names.check([f"asks-{rank}"]):  # perhaps one of an earlier start, which is gone: ask again
                names.set(names.get(f"asks-{rank}").decode(), _this_start)
        if time.monotonic() > until:
            raise RuntimeError(f"rank {min(missing)} did not come to meet the others")
        time.sleep(0.02)


def this_start() -> str:
    """The same on all ranks, and another one after each restart by torchrun. Empty where nobody restarts."""
    return _this_start


def destroy_process_group() -> None:
    """``torch.distributed.destroy_process_group``; does nothing where there is no group. Let go of the model before.

    With gloo, a rank may hang where a DDP model is the last to hold the group (pytorch issue 56297): freeing the model
    waits for gloo's threads, and one of them may wait for Python. Models in circles of references are collected here.
    """
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        gc.collect()
        dist.destroy_process_group()


def _variables(here: World) -> dict[str, object]:
    return {
        "MASTER_ADDR": here.master_addr,
        "MASTER_PORT": here.master_port,
        "RANK": here.rank,
        "LOCAL_RANK": here.local_rank,
        "WORLD_SIZE": here.world_size,
        "LOCAL_WORLD_SIZE": here.local_world_size,
    }


def summary() -> str:
    """Rank, sizes, nodes and device of this process, one a line."""
    here = world()
    facts = {
        "launcher": here.launcher,
        "rank": f"{here.rank} of {here.world_size} (local {here.local_rank} of {here.local_world_size})",
        "nodes": f"{here.num_nodes}: {', '.join(here.nodelist)}",
        "host": here.hostname,
        "cores": here.cpus,
        "device": here.device,
        "master": f"{here.master_addr}:{here.master_port}",
    }
    return "\n".join(f"{name:9}{value}" for name, value in facts.items())


def port_of_job(job_id: str) -> int:
    """idr_torch's rule, the same on all ranks without asking anyone.

    >>> port_of_job("1234567")
    24567
    """
    return 10000 + int(job_id) % 20000


def expand_nodelist(text: str) -> list[str]:
    """
    >>> expand_nodelist("node[1-2,07],login1")
    ['node1', 'node2', 'node07', 'login1']
    >>> expand_nodelist("r[1-2]n[08-09]")
    ['r1n08', 'r1n09', 'r2n08', 'r2n09']
    """
    return [name for part in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text) for name in _expand(part.strip())]


def _expand(part: str) -> list[str]:
    match = re.match(r"([^\[]*)\[([^\]]*)\](.*)", part)
    if match is None:
        return [part]
    head, ranges, tail = match.groups()
    numbers = []
    for each in ranges.split(","):
        first, _, last = each.partition("-")
        numbers += [str(number).zfill(len(first)) for number in range(int(first), int(last or first) + 1)]
    return [f"{head}{number}{rest}" for number in numbers for rest in _expand(tail)]


def expand_counts(text: str) -> list[int]:
    """
    >>> expand_counts("4(x2),3")
    [4, 4, 3]
    """
    found = re.findall(r"(\d+)(?:\(x(\d+)\))?", text)
    return [int(count) for count, times in found for _ in range(int(times or 1))]


def _gpu_ids(env: Mapping[str, str]) -> tuple[int, ...]:
    text = env.get("SLURM_STEP_GPUS") or env.get("CUDA_VISIBLE_DEVICES") or ""
    return tuple(int(word) for word in text.split(",") if word.strip().isdigit())


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def __getattr__(name: str) -> Any:
    wanted = _ALIASES.get(name, name)
    if wanted in World.__dataclass_fields__ or wanted in ("is_master", "device"):
        return getattr(world(), wanted)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
