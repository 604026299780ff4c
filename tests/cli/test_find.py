"""``vivace find`` on real processes: never a setting that was not run, and clear words for what goes wrong."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import interrupted
from forked.process import PYTHON

from vivace.records.search import BatchSearch
from vivace.tune.finders.loader import NO_LIMIT_SHARE

SCRIPTS = Path(__file__).parents[1] / "tune" / "finders" / "scripts"
SIZED = [sys.executable, str(SCRIPTS / "sized.py")]
LOADING = [sys.executable, str(SCRIPTS / "loading.py")]
BATCH = ["find", "batch", "--flag", "-b", "--steps", "3"]


@pytest.mark.slow
def test_the_largest_size_before_out_of_memory_is_found(vivace_here: Callable, tmp_path: Path):
    done = vivace_here(*BATCH, "--margin", "1MiB", "--json", "--", *SIZED, "--most", "7")
    assert done.code == 0, done.err
    search = BatchSearch.from_json(done.out)
    outcomes = {one.size: one.outcome for one in search.tried}
    assert outcomes == {4: "ok", 6: "ok", 7: "ok", 8: "out-of-memory"}
    assert [one.batch_size for one in search.tried if one.trained] == [4, 6, 7]
    assert (search.own_size, search.largest, search.first_too_large) == (4, 7, 8)
    assert search.knee in (6, 7)  # by the clock: whichever is within 5 %
    assert search.memory == "host"
    assert "square-root rule, AdamW" in search.advice[1]
    assert BatchSearch.load(done.folder / "batch.json") == search
    report = vivace_here("report")
    assert report.code == 0, report.err
    assert "out-of-memory" in (done.folder / "report.html").read_text()


@pytest.mark.slow
def test_one_rank_out_of_memory_fails_the_size_for_all(vivace_here: Callable):
    torchrun = [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*torchrun, *SIZED[1:], "--most", "5"]
    done = vivace_here(*BATCH, "--values", "6", "--margin", "1MiB", "--json", "--", *command)
    search = BatchSearch.from_json(done.out)
    assert [(one.size, one.outcome) for one in search.tried] == [(4, "ok"), (6, "out-of-memory")]
    assert [(one.ranks, one.global_batch_size) for one in search.tried if one.trained] == [(2, 8)]
    assert search.largest == 4


def test_a_flag_without_effect_is_an_error(vivace_here: Callable):
    done = vivace_here(*BATCH, "--", *SIZED, "--ignore")
    assert done.code == 2
    assert "-b 8 did not change the batch: 4 samples were measured" in done.err
    assert "Traceback" not in done.err


def test_a_flag_that_the_script_does_not_know_is_an_error(vivace_here: Callable):
    done = vivace_here("find", "batch", "--flag", "--bogus", "--steps", "3", "--", *SIZED)
    assert done.code == 2
    assert "the command fails with --bogus although it trains without" in done.err
    assert "unrecognized arguments" in done.err


def test_key_value_arguments_and_given_values(vivace_here: Callable):
    options = ("find", "batch", "--flag", "data.batch=", "--values", "6,5", "--steps", "3", "--json")
    search = BatchSearch.from_json(vivace_here(*options, "--", *SIZED).out)
    assert [(one.size, one.batch_size) for one in search.tried] == [(4, 4), (5, 5), (6, 6)]
    assert search.complete


def test_the_longest_batch_decides_although_it_would_come_last(vivace_here):
    done = vivace_here(*BATCH, "--values", "16", "--json", "--", sys.executable, str(SCRIPTS / "lengths.py"), "-b", "8")
    assert done.code == 0, done.err
    assert {one["size"]: one["outcome"] for one in done.record["tried"]} == {8: "ok", 16: "out-of-memory"}
    assert done.record["largest"] == 8  # 8 samples of 500 tokens fit into 4000; of ordinary ones 266 would
    assert any("longest of 20000 samples looked at, of 20000" in note for note in done.record["notes"])


def test_a_search_out_of_time_goes_on_where_it_stopped(vivace_here: Callable, tmp_path: Path):
    first = vivace_here(*BATCH, "--values", "4,5", "--budget", "0.001", "--", *SIZED, "-b", "4")
    assert first.code == 0, first.err
    assert "the time budget is used up" in first.err
    assert f"vivace find batch --resume {first.folder.relative_to(tmp_path)}" in first.err
    own = next(first.folder.glob("trials/*/trial.json"))
    written_at = own.stat().st_mtime_ns
    second = vivace_here("find", "batch", "--resume", str(first.folder), "--budget", "5", "--json")
    search = BatchSearch.from_json(second.out)
    assert [one.size for one in search.tried] == [4, 5]
    assert search.complete
    assert own.stat().st_mtime_ns == written_at  # not run again
    kept = second.folder / "find.json"
    assert json.loads(kept.read_text())["budget_s"] == 300.0  # the next --resume has it too
    assert kept.stat().st_mode & 0o777 == 0o600


def test_ctrl_c_keeps_what_was_run(tmp_path: Path):
    second = tmp_path / "vivace-runs/sized-001/trials/001-size-8/stdout.log"
    done = interrupted([*BATCH, "--", *SIZED, "--samples", "100000"], tmp_path, second.exists)
    search = BatchSearch.load(tmp_path / "vivace-runs/sized-001/batch.json")
    assert done.code == 130, done.err
    assert [one.size for one in search.tried] == [4]
    assert search.ended == "interrupted"


def test_what_is_asked_wrongly_is_told(vivace_here: Callable):
    assert "which option sets the batch size?" in vivace_here("find", "batch", "--", *SIZED).err
    assert "is not an amount of memory" in vivace_here(*BATCH, "--margin", "lots", "--", *SIZED).err
    assert "is not a list of sizes" in vivace_here(*BATCH, "--values", "1,x", "--", *SIZED).err
    assert "is not a flag" in vivace_here("find", "batch", "--flag", "8", "--", *SIZED).err
    assert "contains no search to continue" in vivace_here("find", "loader", "--resume", ".").err


def test_a_loader_that_is_no_limit_ends_the_search_at_once(vivace_here: Callable):
    done = vivace_here("find", "loader", "--steps", "5", "--json", "--", *LOADING, "--step-s", "0.1")
    search = done.record
    own = search["tried"][0]
    waits = own["loader_ms"] >= NO_LIMIT_SHARE * own["step_ms"]["mean"]  # on a busy machine this loader may be slow
    assert search["limits"] is waits
    assert waits or len(search["tried"]) == 1
    assert waits or search["ended"].startswith("the loader is not the limit")
    assert search["complete"]


def test_a_loader_that_sleeps_gets_workers_until_steps_hardly_wait(vivace_here: Callable):
    """120 ms of sleeping per batch beside a step of 10: one worker in place of none is little, more are much, and a
    busy machine adds little to such a sleep."""
    slow = ("--load-s", "0.03", "--step-s", "0.01")
    done = vivace_here("find", "loader", "--steps", "5", "--json", "--", *LOADING, *slow)
    search = done.record
    assert search["limits"] is True
    assert [one["workers"] for one in search["tried"]][:3] == [0, 1, 2]
    assert search["tried"][2]["workers_busy"] < 0.5  # it sleeps: more workers than cores make sense
    assert search["tried"][2]["most_workers"] >= 4
    assert search["workers"] >= 2
    assert search["speedup"] > 1.5  # 2.2 with two, 4.3 with four
    assert search["tried"][1]["words"] == ["workers=1"]
    assert search["tried"][1]["workers_memory_gib"] > 0.01
    assert search["words"] in [one["words"] for one in search["tried"]]
    assert search["complete"]


def test_an_iterable_data_set_cannot_be_changed_from_outside(vivace_here: Callable):
    done = vivace_here("find", "loader", "--steps", "5", "--", *LOADING, "--load-s", "0.02", "--iterable")
    assert done.code == 0, done.err
    assert "cannot be changed from outside: the dataset is iterable" in " ".join(done.out.split()).lower()
