"""Many short measured runs without paying for ``import torch`` in each: every run is a fork of a process that has it.

A run is a process of its own: seeds, patches, practices and the script's state are made in the fork, and end with it.
Each leaves its measurement in a folder; what is there is not run again. Not for ``compile``: torch.compile must be
imported after vivace's patches are in place, and here it is imported before.
"""

from __future__ import annotations

import importlib
import os
import runpy
import sys
import traceback
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from vivace.hardware.machine import this_machine
from vivace.measure.measuring import read_told
from vivace.measure.merge import merge
from vivace.measure.ranks import read_payloads
from vivace.practices.engine import entry
from vivace.protocol.payload import Status
from vivace.protocol.request import ProcessRequest
from vivace.records.machine import Machine
from vivace.records.measurement import Measurement
from vivace.tune.trials import environment_of

__all__ = ["RunFailed", "run"]

_machine: list[Machine] = []


class RunFailed(Exception):
    """The script ended before its steps were measured; its output is in the run's folder."""


def run(
    script: Path,
    arguments: Sequence[str],
    words: Sequence[str],
    request: ProcessRequest,
    environment: Mapping[str, str],
) -> Measurement:
    """``request.folder`` receives the record and the script's output."""
    folder = Path(request.folder)
    record = folder / "measurement.json"
    if record.is_file():
        return Measurement.load(record)
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("rank-*.json"):
        old.unlink()
    _fork(script, arguments, request, {**environment_of(words), **environment})
    payloads = read_payloads(folder)
    if not payloads or payloads[0].status is not Status.COMPLETE:
        raise RunFailed(f"{folder.name}: {(folder / 'output.log').read_text()[-500:]}")
    if not _machine:
        _machine.append(this_machine())
    command = (sys.executable, str(script), *arguments)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    measurement = merge(payloads, _machine[0], command, {}, str(folder), now, practices=read_told(folder))
    measurement.save(record)
    return measurement


def _fork(script: Path, arguments: Sequence[str], request: ProcessRequest, environment: Mapping[str, str]) -> None:
    importlib.import_module("torch._dynamo")  # every optimizer imports it: once, before the first fork
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    code = 1
    try:
        with (Path(request.folder) / "output.log").open("w") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        os.environ.update(environment)
        entry.install(request)
        sys.argv = [str(script), *arguments]
        sys.path.insert(0, str(script.parent))
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit:
        code = 0  # how a measurement ends its script
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
