"""Programs that the script starts and waits for: rank 0 runs them, and every rank gets their result.

``subprocess.run``, ``call``, ``check_call``, ``check_output`` and ``os.system``, called by the script itself. What
libraries start is theirs, and runs on every rank. A program that the script starts with ``subprocess.Popen`` runs on
every rank, too, and rank 0 says so.
"""

from __future__ import annotations

import base64
import builtins
import json
import os
import subprocess
import sys
from typing import Any

from vivace.measure.inside.patches import in_place_of
from vivace.scale.callers import called_by_script
from vivace.scale.group import Group

__all__ = ["Programs"]


class Programs:
    def __init__(self, group: Group) -> None:
        self.group = group
        self._told = False

    def install(self) -> None:
        own_run, own_system, own_popen = subprocess.run, os.system, subprocess.Popen

        def run(*args: Any, **kwargs: Any) -> Any:
            if not called_by_script(1):
                return own_run(*args, **kwargs)
            check = kwargs.pop("check", False)
            done = self._ran(own_run, args, kwargs)
            if check:
                done.check_returncode()
            return done

        def call(*args: Any, **kwargs: Any) -> Any:
            if not called_by_script(1):
                return own_call(*args, **kwargs)
            return self._ran(own_run, args, kwargs).returncode

        def check_call(*args: Any, **kwargs: Any) -> Any:
            if not called_by_script(1):
                return own_check_call(*args, **kwargs)
            return self._checked(own_run, args, kwargs).returncode

        def check_output(*args: Any, **kwargs: Any) -> Any:
            if not called_by_script(1):
                return own_check_output(*args, **kwargs)
            return self._checked(own_run, args, {**kwargs, "stdout": subprocess.PIPE}).stdout

        def system(command: Any) -> int:
            if not called_by_script(1):
                return own_system(command)
            return int(self._from_rank_0(lambda: own_system(command), command))

        def popen(*args: Any, **kwargs: Any) -> Any:
            if self.group.rank == 0 and not self._told and called_by_script(1):
                self._told = True
                sys.stderr.write(
                    "vivace: every rank starts a program of the script's (subprocess.Popen); "
                    "with subprocess.run, rank 0 starts it for all\n"
                )
            return init(*args, **kwargs)

        own_call, own_check_call, own_check_output = subprocess.call, subprocess.check_call, subprocess.check_output
        subprocess.run = in_place_of(own_run, run)
        subprocess.call = in_place_of(own_call, call)
        subprocess.check_call = in_place_of(own_check_call, check_call)
        subprocess.check_output = in_place_of(own_check_output, check_output)
        os.system = system
        init: Any = own_popen.__init__
        own_popen.__init__ = in_place_of(init, popen)  # type: ignore[method-assign]

    def _ran(self, own_run: Any, args: Any, kwargs: Any) -> Any:
        return self._from_rank_0(lambda: own_run(*args, **kwargs), args[0] if args else kwargs.get("args"))

    def _checked(self, own_run: Any, args: Any, kwargs: Any) -> Any:
        done = self._ran(own_run, args, kwargs)
        done.check_returncode()
        return done

    def _from_rank_0(self, start: Any, command: Any) -> Any:
        """Its result on every rank, or its error."""
        result, error = None, None
        if self.group.rank == 0:
            try:
                result = start()
            except Exception as raised:
                error = raised
        told = json.loads(self.group.text_from_rank(0, json.dumps(_described(result, error))))
        if error is not None:
            raise error
        if self.group.rank == 0:
            return result
        if "error" in told:
            kind = getattr(builtins, told["error"], RuntimeError)
            raise kind(*told["why"])
        if "number" in told:
            return told["number"]
        return subprocess.CompletedProcess(command, told["code"], _read(told["out"]), _read(told["err"]))


def _described(result: Any, error: Exception | None) -> dict[str, Any]:
    if error is not None:
        return {"error": type(error).__name__, "why": [str(word) for word in error.args]}
    if isinstance(result, subprocess.CompletedProcess):
        return {"code": result.returncode, "out": _written(result.stdout), "err": _written(result.stderr)}
    return {"number": result}


def _written(output: Any) -> Any:
    return base64.b64encode(output).decode() if isinstance(output, bytes) else None if output is None else [output]


def _read(told: Any) -> Any:
    """Bytes, text or nothing."""
    return told[0] if isinstance(told, list) else None if told is None else base64.b64decode(told)
