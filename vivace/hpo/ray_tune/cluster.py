"""Where Ray runs: a cluster that the user has (``RAY_ADDRESS``), the nodes of this Slurm allocation, or this machine.

What vivace starts, it ends. In an allocation ``srun`` starts Ray on every node, the head on the node of this process;
its port follows from the job id, so that two jobs on one node do not meet.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from vivace.distributed import expand_nodelist
from vivace.errors import UserError
from vivace.hpo.ray_tune.node import OBJECT_STORE_BYTES

__all__ = ["Allocation", "Cluster", "allocation_here", "check_ray", "free_port", "running_cluster"]

_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # A trial's command must not outlive the process that watches it, however that process ends.
    "RAY_kill_child_processes_on_worker_exit_with_raylet_subreaper": "true",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # trials without a GPU of their own see those that vivace sees
    "RAY_AIR_NEW_OUTPUT": "0",  # or it draws a table for each result
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # the study's folder has the logs
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",  # a command that trains for an hour before its first metric
    "TUNE_FORCE_TRIAL_CLEANUP_S": "30",
    "TUNE_WARN_THRESHOLD_S": "60",
}
_PORTS_TRIED = 20
_NODES_S = 120.0
_END_S = 20.0


def check_ray() -> None:
    if importlib.util.find_spec("ray") is None:
        raise UserError("--engine ray needs Ray", hint="pip install 'vivace[ray]', or leave out --engine")


@dataclass(frozen=True)
class Allocation:
    """Of Slurm. ``here``: the index of this process's node among ``nodes``."""

    job: str
    nodes: tuple[str, ...]
    here: int


@dataclass(frozen=True)
class Cluster:
    """``slots``: trials at a time on each of its machines."""

    nodes: int
    slots: int


def allocation_here(environment: Mapping[str, str]) -> Allocation | None:
    """None: not inside a job. A ``UserError`` if this process runs elsewhere (``salloc`` on a login node)."""
    job, nodes = environment.get("SLURM_JOB_ID"), expand_nodelist(environment.get("SLURM_JOB_NODELIST", ""))
    if not job or not nodes:
        return None
    name = environment.get("SLURMD_NODENAME") or socket.gethostname().partition(".")[0]
    if name not in nodes:
        raise UserError(
            f"{name} is not a node of job {job}, and Ray's driver must run on one of them",
            hint="srun --overlap --nodes 1 --ntasks 1 vivace hpo …, or send it with --slurm 'OPTIONS'",
        )
    return Allocation(job, tuple(nodes), nodes.index(name))


def free_port(job: str, address: str) -> int:
    """The job's own port, or the next one that nobody has taken.

    Below the ports that Linux gives away (32768), and none of those of trials that find each other by
    ``vivace.distributed`` in the same job (10000 to 29999).
    """
    first = 30000 + int(job) % 2000
    for port in range(first, first + _PORTS_TRIED):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind((address, port))
                return port
    raise UserError(f"the ports {first} to {first + _PORTS_TRIED - 1} of {address} are all taken")


@contextlib.contextmanager
def running_cluster(folder: Path, workers: int, gpus: int, say: Callable[[str], None]) -> Iterator[Cluster]:
    """Ray, connected, for so many trials at a time; ``gpus`` of each machine. ``folder``: the study's, on all nodes."""
    os.environ.update({name: value for name, value in _SETTINGS.items() if name not in os.environ})
    with contextlib.ExitStack() as stack:
        if "RAY_ADDRESS" not in os.environ:
            stack.enter_context(_own_token(folder))
        yield stack.enter_context(_connected(workers, gpus, say))


@contextlib.contextmanager
def _own_token(folder: Path) -> Iterator[None]:
    """Others on these nodes must not be able to run code in our Ray: only who can read this file may use it."""
    path = folder.absolute() / f"ray-{os.getpid()}.token"
    path.unlink(missing_ok=True)
    with open(path, "x", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(secrets.token_hex(32))
    os.environ.update({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(path)})
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def _connected(workers: int, gpus: int, say: Callable[[str], None]) -> Iterator[Cluster]:
    import ray

    quiet = {"log_to_driver": False, "logging_level": "error"}
    allocation = allocation_here(os.environ)
    with contextlib.ExitStack() as stack:
        if address := os.environ.get("RAY_ADDRESS"):
            ray.init(address=address, **quiet)
            cluster = Cluster(max(1, _alive()), workers)
        elif allocation is not None and len(allocation.nodes) > 1:
            cluster = stack.enter_context(_in_allocation(allocation, workers, gpus, say))
        else:
            temp = stack.enter_context(_own_folder())
            ray.init(
                address="local", num_cpus=workers, num_gpus=gpus, include_dashboard=False,
                object_store_memory=OBJECT_STORE_BYTES, _temp_dir=temp, **quiet,
            )  # fmt: skip
            cluster = Cluster(1, workers)
        stack.callback(ray.shutdown)
        yield cluster


def _alive() -> int:
    import ray

    return sum(bool(node["Alive"]) for node in ray.nodes())


@contextlib.contextmanager
def _own_folder() -> Iterator[str]:
    """For Ray's sockets, whose paths may have 107 characters: /tmp, whatever ``TMPDIR`` says."""
    folder = tempfile.mkdtemp(prefix="vivace-ray-", dir="/tmp")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _in_allocation(allocation: Allocation, workers: int, gpus: int, say: Callable[[str], None]) -> Iterator[Cluster]:
    import ray

    count = len(allocation.nodes)
    slots = -(-workers // count)
    address = _address_of(allocation.nodes[allocation.here])
    port = free_port(allocation.job, address)
    temp = f"/tmp/vivace-ray-{os.getuid()}-{allocation.job}"
    ray_program = Path(sys.executable).with_name("ray")
    command = [
        "srun", "--overlap", f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1", "--kill-on-bad-exit=0",
        "--input=all",
        sys.executable, "-m", "vivace.hpo.ray_tune.node", str(allocation.here), address, str(port), temp, str(slots),
        str(gpus), str(ray_program),
    ]  # fmt: skip
    say(f"Ray: head {allocation.nodes[allocation.here]} at {address}:{port}, {count} nodes, {slots} trials on each")
    nodes = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    try:
        _connect(f"{address}:{port}", address, nodes, count, say)
        yield Cluster(_alive(), slots)
    finally:
        ray.shutdown()
        _end(nodes)


def _connect(address: str, ip: str, nodes: subprocess.Popen[bytes], count: int, say: Callable[[str], None]) -> None:
    import ray

    until = time.monotonic() + _NODES_S
    while not ray.is_initialized():
        if nodes.poll() is not None:
            raise UserError(
                f"Ray did not start: srun ended with exit code {nodes.returncode}", hint="see the lines above"
            )
        try:
            ray.init(address=address, _node_ip_address=ip, log_to_driver=False, logging_level="error")
        except (ConnectionError, RuntimeError, TimeoutError) as error:
            if time.monotonic() > until:
                raise UserError(f"Ray's head at {address} does not answer: {error}") from None
            time.sleep(1.0)
    while _alive() < count and time.monotonic() < until:
        time.sleep(0.5)
    if _alive() < count:
        say(f"only {_alive()} of {count} nodes came; the study goes on with them")


def _end(nodes: subprocess.Popen[bytes]) -> None:
    """The end of their input ends all nodes, and srun waits for them."""
    assert nodes.stdin is not None
    for end in (nodes.stdin.close, nodes.terminate, nodes.kill):
        with contextlib.suppress(OSError):
            end()
        with contextlib.suppress(subprocess.TimeoutExpired):
            nodes.wait(_END_S)
            return


def _address_of(node: str) -> str:
    """By which the other nodes reach it: what Slurm itself uses (``NodeAddr``), else its name."""
    done = subprocess.run(["scontrol", "show", "node", node, "--oneliner"], capture_output=True, text=True, check=False)
    words = dict(word.partition("=")[::2] for word in done.stdout.split())
    for name in (words.get("NodeAddr"), node, socket.gethostname()):
        with contextlib.suppress(OSError):
            if name:
                return socket.gethostbyname(name)
    raise UserError(f"the address of {node} cannot be found")
