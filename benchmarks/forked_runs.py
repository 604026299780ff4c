"""Many short measured runs without paying for ``import torch`` in each: every run is a fork of a process that has it.

    with forked():
        run_trial((sys.executable, "train.py"), …)

A run is a process of its own: seeds, patches, practices and the script's state are made in the fork, and end with it.
Not for ``compile``: torch.compile must be imported after vivace's patches are in place, and here it is before.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import runpy
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from vivace.measure import measuring
from vivace.measure.command import Outcome
from vivace.practices.engine import entry
from vivace.protocol.request import ProcessRequest

__all__ = ["forked"]


@contextlib.contextmanager
def forked() -> Iterator[None]:
    """``measure`` forks Python commands instead of starting them."""
    importlib.import_module("torch._dynamo")  # every optimizer imports it: once, before the first fork
    with mock.patch.object(measuring, "run_command", _run):
        yield


def _run(
    command: Sequence[str], request: ProcessRequest, _sink: Any, _progress: Any, _timeout: Any,
    environment: Mapping[str, str], *_more: Any,
) -> Outcome:  # fmt: skip
    sys.stdout.flush()
    sys.stderr.flush()
    began_s = time.monotonic()
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        return Outcome(exit_code=os.waitstatus_to_exitcode(status), seconds=time.monotonic() - began_s)
    code = 1
    try:
        with (Path(request.folder) / "stderr.log").open("w") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        os.environ.update({**environment, **os.environ})
        entry.install(request)
        script, *arguments = command[1:]
        sys.argv = [script, *arguments]
        sys.path.insert(0, str(Path(script).parent))
        runpy.run_path(script, run_name="__main__")
    except SystemExit:
        code = 0  # how a measurement ends its script
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    raise AssertionError
