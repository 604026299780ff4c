"""Which number of workers comes next, and which setting wins."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from report.made import made_measurement, made_trial, spread

from vivace.errors import UserError
from vivace.records.measurement import Loader
from vivace.records.search import LoaderSearch, LoaderTried
from vivace.records.trial import Trial
from vivace.tune import bench
from vivace.tune.finders.asked import Asked
from vivace.tune.finders.loader import _notes, _why_no_more, best_of, find_loader, next_workers


def ran(
    workers: int, rate: float, waits: bool = True, prefetch: int | None = None, most: int | None = None
) -> LoaderTried:
    return LoaderTried(
        workers=workers, prefetch=prefetch, outcome="ok", samples_per_s=rate, step_ms=spread(100.0),
        loader_ms=50.0 if waits else 1.0, most_workers=most,
    )  # fmt: skip


def counts(rates: dict[int, float], own: int, cores: int, waits_below: int = 99, most: int | None = None) -> list[int]:
    """``most``: where the workers wait themselves, which shows once there are workers."""
    tried = [ran(own, rates[own], most=most if own else None)]
    while (count := next_workers(tried, cores)) is not None:
        assert count not in {one.workers for one in tried}
        tried.append(ran(count, rates[count], waits=count < waits_below, most=most if count else None))
    return [one.workers for one in tried]


def test_workers_double_up_to_the_cores_while_steps_wait():
    assert counts({0: 10, 1: 11, 2: 20, 4: 40, 6: 50}, own=0, cores=6) == [0, 1, 2, 4, 6]


@pytest.mark.parametrize("one_worker", [9.0, 10.0, 10.2, 10.4])
def test_one_worker_that_is_hardly_faster_than_none_does_not_end_the_search(one_worker: float):
    rates = {0: 10.0, 1: one_worker, 2: 20.0, 4: 40.0}
    assert counts(rates, own=0, cores=4) == [0, 1, 2, 4]


def test_two_doublings_in_vain_end_the_search_and_one_does_not():
    """A single run may be slow by chance; that the steps still wait is what counts."""
    assert counts({0: 10, 1: 20, 2: 19, 4: 40, 8: 80}, own=0, cores=8) == [0, 1, 2, 4, 8]
    assert counts({0: 10, 1: 20, 2: 20.1, 4: 20.2, 8: 80}, own=0, cores=8) == [0, 1, 2, 4]


def test_more_workers_than_cores_are_tried_where_the_workers_wait_themselves():
    rates = {0: 10, 1: 11, 2: 20, 4: 40, 8: 80, 16: 81}
    assert counts(rates, own=0, cores=2, most=32, waits_below=8) == [0, 1, 2, 4, 8]
    assert counts(rates, own=2, cores=2, most=32, waits_below=8) == [2, 4, 8]
    assert counts(rates, own=0, cores=2) == [0, 1, 2]


def test_no_more_workers_once_the_loader_is_no_limit():
    assert counts({0: 10, 1: 20, 2: 40}, own=0, cores=8, waits_below=2) == [0, 1, 2]


def test_a_script_with_all_cores_is_tried_with_fewer():
    assert counts({8: 40, 4: 39.9, 2: 20}, own=8, cores=8) == [8, 4, 2]


def test_the_smallest_setting_within_three_percent_wins():
    best = best_of([ran(0, 50.0), ran(2, 97.5), ran(4, 100.0), ran(2, 97.5, prefetch=4)])
    assert best is not None
    assert (best.workers, best.prefetch) == (2, None)


def test_a_setting_that_failed_never_wins():
    assert best_of([LoaderTried(workers=1, outcome="crash")]) is None


def test_a_gain_beyond_the_waits_is_explained_and_one_within_is_not():
    own = ran(0, 100.0, waits=False)  # 1 of 100 ms
    assert len(list(_notes(ran(1, 101.0), own))) == 1
    (_, note) = _notes(ran(1, 113.0), own)
    assert "1.01× as fast" in note


def test_the_end_says_what_was_run():
    assert "up to 4 workers were run" in _why_no_more([ran(0, 1.0), ran(4, 2.0)], cores=4)
    assert "more than 2 workers were not run" in _why_no_more([ran(0, 1.0), ran(1, 2.0), ran(2, 2.0)], cores=8)
    assert "hardly a step waits" in _why_no_more([ran(0, 1.0), ran(1, 2.0, waits=False)], cores=4)
    assert "on 2 cores: they mostly wait" in _why_no_more([ran(0, 1.0), ran(32, 2.0, most=32)], cores=2)


def search(monkeypatch: pytest.MonkeyPatch, folder: Path, own: Trial, more: Trial) -> LoaderSearch:
    """``find_loader`` over stand-ins: the script's own run, and every run with other workers."""

    def stand_in(_command: object, words: Sequence[str], *_: object) -> Trial:
        return more if words else own

    monkeypatch.setattr(bench, "run_trial", stand_in)
    asked = Asked("loader", ("python", "train.py"), budget_s=1e6)
    return find_loader(asked, folder, lambda *_: None, lambda _: None, lambda _: None)


def waiting(**more: object) -> Trial:
    """20 of 100 ms are spent waiting for a loader without workers."""
    loader = Loader(
        batch_size=64, num_workers=0, pin_memory=False, persistent_workers=False, prefetch_factor=None, iterable=False,
        batches=6,
    )  # fmt: skip
    return made_trial("own", (), None, measurement=made_measurement(100.0, loaders=(loader,), **more))


def test_a_crash_with_more_workers_is_not_called_no_help(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    crash = made_trial("more", (), None, outcome="crash", message="Traceback\nRuntimeError: too many open files")
    found = search(monkeypatch, tmp_path, waiting(), crash)
    assert found.ended == "1 worker, prefetch 2 did not train (RuntimeError: too many open files)"
    assert (found.complete, found.words) == (True, ())


def test_a_batch_that_cannot_be_read_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    with pytest.raises(UserError, match="no batch size could be read"):
        search(monkeypatch, tmp_path, waiting(batch_size=None, samples_per_s=None), waiting())


def test_a_setting_without_a_throughput_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    told = {"workers=1": "applied: 1 workers"}
    found = search(monkeypatch, tmp_path, waiting(), waiting(samples_per_s=None, practices=told))
    assert found.ended == "no throughput could be measured with 1 worker, prefetch 2"
