"""Ray on one node of a Slurm allocation: ``srun`` starts this, once for each node.

It waits for ``ray start --block`` and ends it, with all that Ray started, when its standard input ends. srun closes it
on every node when the driver asks for it, or is gone. Then it removes Ray's folder. (srun answers SIGTERM by killing
its tasks, which would leave the folder.) Standard library only: it must be up in a moment on every node.

    python -m vivace.hpo.ray_tune.node HEAD_INDEX ADDRESS PORT TEMP CPUS GPUS RAY
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading

__all__ = ["ray_start"]

OBJECT_STORE_BYTES = 100 * 2**20
"""Nothing large travels through Ray here; it would take a third of the memory otherwise."""


def ray_start(is_head: bool, address: str, port: int, temp: str, cpus: int, gpus: int, ray: str) -> list[str]:
    """Only the head's port must be known to all nodes: the system gives the others free ones."""
    own = (
        ["--head", f"--node-ip-address={address}", f"--port={port}", f"--temp-dir={temp}", "--include-dashboard=false"]
        if is_head
        else [f"--address={address}:{port}"]
    )
    return [
        ray, "start", *own, f"--num-cpus={cpus}", f"--num-gpus={gpus}", "--min-worker-port=0", "--max-worker-port=0",
        f"--object-store-memory={OBJECT_STORE_BYTES}", "--disable-usage-stats", "--block",
    ]  # fmt: skip


def main(arguments: list[str]) -> int:
    head, address, port, temp, cpus, gpus, ray = arguments
    is_head = os.environ.get("SLURM_NODEID", "0") == head
    command = ray_start(is_head, address, int(port), temp, int(cpus), int(gpus), ray)
    process = subprocess.Popen(command, start_new_session=True)

    def stop(*_signal: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()

    def stop_at_the_end_of_input() -> None:
        sys.stdin.buffer.read()
        stop()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    threading.Thread(target=stop_at_the_end_of_input, daemon=True).start()
    try:
        process.wait()
        return 0
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        shutil.rmtree(temp, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
