"""The bench: how long a trial may take, with and without a queue before it."""

from __future__ import annotations

from pathlib import Path

import pytest

from vivace.records.trial import Trial
from vivace.tune import bench as bench_module
from vivace.tune.bench import Bench
from vivace.tune.trials import TrialSettings


@pytest.mark.parametrize(
    ("prefix", "asked", "limit", "timeout"),
    [
        ((), None, 60.0, 60.0),
        ((), 30.0, 60.0, 30.0),
        (("srun", "--gpus=1"), None, 60.0, None),  # it may wait in the queue for longer than that
        (("srun", "--gpus=1"), 30.0, 60.0, 30.0),  # what the user asked for holds
    ],
)
def test_a_limit_is_not_for_jobs_that_wait_in_a_queue(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, prefix: tuple[str, ...], asked, limit, timeout
):
    started: list[tuple[tuple[str, ...], TrialSettings]] = []

    def run_trial(command, words, folder, settings, sink, progress) -> Trial:
        started.append((command, settings))
        return Trial(name=folder.name, command=command, practices=tuple(words), seconds=1.0, outcome="ok", message="")

    monkeypatch.setattr(bench_module, "run_trial", run_trial)
    bench = Bench(("python", "train.py"), tmp_path, 600.0, TrialSettings(timeout_s=asked), print, print, print, prefix)  # type: ignore[arg-type]
    bench.run("try", limit_s=limit)
    ((command, settings),) = started
    assert (command, settings.prefix) == (("python", "train.py"), prefix)
    assert settings.timeout_s == timeout
