"""Options of DDP: found when they cost communication or copies; then the wrapper is made with other options."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from practices.evidence import measurement

from vivace.practices.ddp_options import PRACTICE, find
from vivace.records.structure import Spot, Wrapper
from vivace.tune.trials import TrialSettings, run_trial

SCRIPT = Path(__file__).parent.parent / "measure" / "scripts" / "ddp.py"


def wrapped(exposed_ms: float = 0.0, parameters: int = 25_000_000, name: str = "DistributedDataParallel", **options):
    usual = {"find_unused_parameters": False, "gradient_as_bucket_view": False, "static_graph": False}
    wrapper = Wrapper(name=name, options={**usual, **options}, where=Spot(file="train.py", line=9))
    return measurement(
        structure={"wrappers": (wrapper,)},
        profile={"communication_exposed_ms_per_step": exposed_ms},
        trainable_parameters=parameters,
        step_ms=100.0,
    )


def test_a_search_for_unused_parameters_that_finds_none():
    found = find(wrapped(8.0, find_unused_parameters=True, unused_parameters=0, gradient_as_bucket_view=True))
    assert found is not None
    assert found.exposed_ms == 8.0
    assert found.setting == "ddp_options=all_used"
    assert found.where == ("train.py", 9)
    assert "every parameter got a gradient" in found.says


def test_with_unused_parameters_it_speaks_of_a_static_graph_and_the_order_of_layers():
    found = find(wrapped(8.0, find_unused_parameters=True, unused_parameters=3, gradient_as_bucket_view=True))
    assert found is not None
    assert found.setting == "ddp_options=static_graph"
    assert "in the order in which the forward calls them" in (found.by_hand or "")


def test_copies_into_buckets_are_priced_by_the_memory_bandwidth():
    found = find(wrapped(parameters=2_000_000_000))
    assert found is not None
    assert found.exposed_ms == pytest.approx(16 * 2e9 / 4.8e12 * 1e3)  # 6.7 ms on an H200
    assert found.setting == "ddp_options=views"


@pytest.mark.parametrize(
    "present",
    [
        wrapped(8.0, parameters=25_000_000),  # exposed, but not by these options; copies take 0.08 ms
        wrapped(8.0, gradient_as_bucket_view=True),
        wrapped(0.1, find_unused_parameters=True, unused_parameters=0, gradient_as_bucket_view=True),
        wrapped(8.0, name="DataParallel", find_unused_parameters=True),
        measurement(),
    ],
)
def test_not_found_when_present_or_of_no_use(present):
    assert find(present) is None


def ddp_trial(folder: Path, *words: str):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(SCRIPT)]
    trial = run_trial(command, words, folder, TrialSettings(steps=4), sink=_silent, progress=lambda _: None)
    assert trial.outcome == "ok", trial.message
    return trial.measurement


def _silent(*_args) -> None: ...


def test_two_ranks_train_with_the_new_options_and_the_same_losses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    plain = ddp_trial(tmp_path / "plain")
    (before,) = plain.structure.wrappers
    assert before.options["gradient_as_bucket_view"] is False
    changed = ddp_trial(tmp_path / "changed", "ddp_options")
    (after,) = changed.structure.wrappers
    assert after.options["gradient_as_bucket_view"] is True
    assert str(changed.practices["ddp_options"]) == "applied: gradient_as_bucket_view=True"
    assert changed.trajectory[:10] == plain.trajectory[:10]
    static = ddp_trial(tmp_path / "static", "ddp_options=static_graph")
    assert "static_graph=True" in static.practices["ddp_options=static_graph"].text
    assert static.trajectory[:10] == plain.trajectory[:10]  # two terms: other buckets round alike


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        (None, {"gradient_as_bucket_view": True}),
        ("views", {"gradient_as_bucket_view": True}),
        ("all_used", {"gradient_as_bucket_view": True, "find_unused_parameters": False}),
        ("static_graph", {"gradient_as_bucket_view": True, "static_graph": True}),
    ],
)
def test_each_word_sets_its_options(word: str | None, expected: dict):
    assert PRACTICE.change is not None
    arguments = {"find_unused_parameters": True, "gradient_as_bucket_view": False, "static_graph": False}
    PRACTICE.change(word).wrapper(arguments)
    assert {name: arguments[name] for name in expected} == expected


def test_other_words_are_refused():
    assert PRACTICE.change is not None
    with pytest.raises(ValueError, match="is not one of views, all_used, static_graph"):
        PRACTICE.change("faster")
