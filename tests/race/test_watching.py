"""The watched command in real processes: read as it runs, ended at any moment with all that it started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from conftest import environment

from vivace.errors import UserError
from vivace.race import watching
from vivace.race.metrics.readings import Problem, Reading, Source
from vivace.race.targets import Wanted
from vivace.race.watching import EndedBy, MetricSource, Watch, Watched, watch

FOREVER = """
import itertools, time
for i in itertools.count():
    print(f'step {i}: val loss {1 / (i + 1)}')
    time.sleep(0.02)
"""


def asked(tmp_path: Path, code: str, wanted: str = "val_loss", **more: object) -> Watch:
    return Watch((sys.executable, "-c", code), tmp_path, Wanted.parse(wanted), cwd=tmp_path, **more)  # type: ignore[arg-type]


def never(_reading: Reading) -> bool:
    return False


def run(request: Watch, **options: object) -> Watched:
    return watch(request, never, **options)  # type: ignore[arg-type]


def test_readings_come_with_their_times_and_the_logs_are_kept(tmp_path: Path):
    code = "import sys\nprint('val loss 2')\nprint('val loss 1', file=sys.stderr)\nsys.exit(3)"
    watched = run(asked(tmp_path, code))
    assert sorted(reading.value for reading in watched.readings) == [1, 2]
    assert all(0 < reading.at_s < watched.seconds and reading.source is Source.PRINTOUT for reading in watched.readings)
    assert (watched.ended, watched.exit_code, watched.crashed) == (EndedBy.ITSELF, 3, True)
    assert (tmp_path / "stdout.log").read_text() == "val loss 2\n"
    assert (tmp_path / "stderr.log").read_text() == "val loss 1\n"


def test_output_comes_at_once_although_it_goes_to_a_pipe(tmp_path: Path):
    """``print`` without ``flush`` would otherwise be held back for kilobytes."""
    seen: list[float] = []
    watched = watch(asked(tmp_path, FOREVER), lambda reading: seen.append(reading.value) or reading.value <= 0.25)
    assert (watched.ended, seen) == (EndedBy.READING, [1, 1 / 2, 1 / 3, 1 / 4])
    assert [reading.step for reading in watched.readings] == [0, 1, 2, 3]


STUBBORN = """
import multiprocessing, os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
sleeps = "import signal, time; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", sleeps], stdout=subprocess.PIPE, start_new_session=True)
child.stdout.readline()
open("pids", "w").write(f"{os.getpid()} {child.pid}")
print("val loss 1")
time.sleep(600)
"""


def test_what_does_not_listen_is_killed_with_its_children_in_other_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """torchrun starts its ranks in sessions of their own."""
    monkeypatch.setattr("vivace.race.watching.POLITE_S", 0.2)
    monkeypatch.setattr("vivace.race.ending._TERMINATE_S", 0.2)
    watched = watch(asked(tmp_path, STUBBORN), lambda _reading: True)
    assert (watched.ended, watched.exit_code) == (EndedBy.READING, 128 + signal.SIGKILL)
    for pid in map(int, (tmp_path / "pids").read_text().split()):
        assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_limits_and_events_end_it(tmp_path: Path):
    assert run(asked(tmp_path, FOREVER, timeout_s=0.3)).ended is EndedBy.LIMIT
    assert run(asked(tmp_path, FOREVER), on_poll=lambda seconds: seconds > 0.2).ended is EndedBy.LIMIT
    stop = threading.Event()
    threading.Timer(0.3, stop.set).start()
    assert run(asked(tmp_path, FOREVER), stop=stop).ended is EndedBy.STOPPED


def test_it_runs_in_threads(tmp_path: Path):
    results: list[Watched] = []
    threads = [
        threading.Thread(target=lambda: results.append(watch(asked(tmp_path, FOREVER), lambda r: r.value < 0.3)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [watched.ended for watched in results] == [EndedBy.READING] * 3


def test_a_metric_that_never_comes_is_a_problem_and_so_is_a_nan(tmp_path: Path):
    watched = run(asked(tmp_path, "print('loss: 2')"))
    assert watched.problem is not None
    assert watched.problem.problem is Problem.NEVER_SEEN
    watched = run(asked(tmp_path, "import time\nprint('val loss nan')\ntime.sleep(600)"))
    assert watched.problem is not None
    assert (watched.ended, watched.problem.problem) == (EndedBy.PROBLEM, Problem.NOT_A_NUMBER)


def test_the_metric_comes_from_a_file(tmp_path: Path):
    code = (
        "import time\nfile = open('log.csv', 'a')\nfor i in range(3):\n"
        "    print(f'{i},{i / 2}', file=file, flush=True)\n    print('val loss 7')\n    time.sleep(0.3)\n"
    )
    (tmp_path / "log.csv").write_text("epoch,val_loss\n0,9\n")
    watched = run(asked(tmp_path, code, source=MetricSource(files=("log.csv",))))
    assert [(reading.epoch, reading.value, reading.source) for reading in watched.readings] == [
        (0, 0.0, Source.CSV), (1, 0.5, Source.CSV), (2, 1.0, Source.CSV)
    ]  # fmt: skip
    with pytest.raises(UserError, match="leave out one"):
        MetricSource(pattern="(x)", files=("log.csv",))


def test_a_command_that_is_not_there_is_an_error(tmp_path: Path):
    with pytest.raises(UserError, match="command not found: no-such-program"):
        run(Watch(("no-such-program",), tmp_path, Wanted.parse("loss")))


def test_a_signal_while_the_command_starts_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """vivace was gone with a KeyboardInterrupt, and the command trained on."""

    def popen(*words: Any, **more: Any) -> Any:
        process = subprocess.Popen(*words, **more)
        os.kill(os.getpid(), signal.SIGINT)
        return process

    monkeypatch.setattr(watching, "subprocess", SimpleNamespace(**{**vars(subprocess), "Popen": popen}))
    assert run(asked(tmp_path, FOREVER)).ended is EndedBy.INTERRUPTED


WATCHES = """
import sys
from pathlib import Path
from vivace.race.targets import Wanted
from vivace.race.watching import Watch, watch
request = Watch((sys.executable, "train.py"), Path("."), Wanted.parse("val_loss"))
print(watch(request, lambda reading: False).ended)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_for_vivace_alone_ends_the_command_too(tmp_path: Path, number: signal.Signals):
    (tmp_path / "train.py").write_text("import os\nopen('pid', 'w').write(str(os.getpid()))\n" + FOREVER)
    process = subprocess.Popen(
        [sys.executable, "-c", WATCHES], cwd=tmp_path, env=environment(), text=True, stdout=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # ignored in a background shell
    )  # fmt: skip
    deadline = time.monotonic() + 600
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(process.pid, number)
    out, _ = process.communicate(timeout=600)
    assert (process.returncode, out) == (0, "interrupted\n")
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))
