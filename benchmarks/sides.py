"""Several commands measured in turn by vivace, each in fresh processes, and ratios between them with an interval."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rows import Clock, say

from vivace.records.measurement import Measurement
from vivace.records.proof import Interval
from vivace.tune.comparison import by_single_runs, ratio_of, speed
from vivace.tune.trials import TrialSettings, run_trial

__all__ = ["EXAMPLES", "ROOT", "Side", "ratio", "run_rounds", "vivace_json"]

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
_TO_END_S = 20.0


@dataclass
class Side:
    """A command with the practices put in from outside (none: as it is), and its measured speeds, one a round."""

    name: str
    command: Sequence[str]
    words: Sequence[str] = ()
    speeds: list[float] = field(default_factory=list)
    records: list[Measurement] = field(default_factory=list)
    seconds: float = 0.0
    failed: str = ""


def run_rounds(
    sides: Sequence[Side], rounds: int, steps: int, folder: Path, clock: Clock, timeout_s: float = 240
) -> None:
    """A, B, A, B, …: what drifts on the machine meets every side alike. A side that fails once is left out after."""
    for number in range(rounds):
        for side in sides:
            if side.failed or clock.left_s() < 10:
                side.failed = side.failed or ("" if side.speeds else "no time left")
                continue
            _run_once(side, folder / f"{side.name}-{number}", steps, clock.timeout_s(timeout_s))


def _run_once(side: Side, folder: Path, steps: int, timeout_s: float) -> None:
    settings = TrialSettings(steps=steps, timeout_s=timeout_s)
    trial = run_trial(side.command, tuple(side.words), folder, settings, lambda *_: None, lambda _: None)
    side.seconds += trial.seconds
    record = trial.measurement
    if trial.outcome != "ok" or record is None:
        side.failed = f"{trial.outcome}: {trial.message}".strip()
        say(f"  {side.name}: {side.failed}")
        return
    side.speeds.append(speed(record))
    side.records.append(record)
    say(f"  {side.name}: {side.speeds[-1]:.1f} per s, {trial.seconds:.0f} s")


def ratio(above: Side, below: Side) -> Interval:
    """The speed of one side over that of another, with the 95 % interval that the scatter of their runs gives.

    One run each tells nothing about that: then both ends are the ratio itself.
    """
    if len(below.records) + len(above.records) <= 2:
        only = ratio_of(below.records[0], above.records[0])
        return Interval(median=only, low=only, high=only)
    return by_single_runs(below.records, above.records, [below.records, above.records]).interval()


def vivace_json(arguments: Sequence[str], command: Sequence[str], timeout_s: float, log: Path) -> dict[str, Any]:
    """``vivace ARGUMENTS --json -- COMMAND``: what it prints, parsed. Raises RuntimeError with its last lines.

    What it says meanwhile is shown, and kept in ``log``.
    """
    whole = [sys.executable, "-m", "vivace", *arguments, "--json", "--", *command]
    log.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile("w+") as out, log.open("w") as kept:
        process = subprocess.Popen(
            whole, stdout=out, stderr=subprocess.PIPE, text=True, errors="replace", cwd=ROOT, start_new_session=True
        )
        # Asked to end first: then it also ends what left its process group, as the ranks of torchrun do.
        timers = [
            threading.Timer(timeout_s, os.killpg, (process.pid, signal.SIGTERM)),
            threading.Timer(timeout_s + _TO_END_S, os.killpg, (process.pid, signal.SIGKILL)),
        ]
        for timer in timers:
            timer.start()
        last: list[str] = []
        assert process.stderr is not None
        for line in process.stderr:
            kept.write(line)
            kept.flush()
            if line.strip():
                last = [*last[-2:], line.strip()]
                print("   ", line.rstrip(), flush=True)
        code = process.wait()
        for timer in timers:
            timer.cancel()
        out.seek(0)
        text = out.read()
    try:
        return json.loads(text)
    except ValueError:
        pass
    if code in (-signal.SIGKILL, -signal.SIGTERM):
        raise RuntimeError(f"vivace {arguments[0]} took more than {timeout_s:.0f} s") from None
    raise RuntimeError(f"vivace {arguments[0]} (exit {code}): {' / '.join(last)}") from None
