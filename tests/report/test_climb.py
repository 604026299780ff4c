"""The waterfall: trials that each added to the one before; nothing is shown that did not run."""

from __future__ import annotations

from report.made import made_trial

from vivace.report.climb import Rung, climb, ratio_with


def test_the_set_grows_from_the_baseline_to_the_winner():
    trials = [
        made_trial("base", (), 100.0),
        made_trial("no", ("compile",), 90.0),  # not part of the winning set
        made_trial("one", ("bf16",), 60.0),
        made_trial("two", ("bf16", "workers=4"), 50.0),
        made_trial("alone", ("workers=4",), 95.0),  # ablation, after the climb
        made_trial("again", (), 102.0),  # a paired run: the baseline is the median of both
    ]
    assert climb(trials, ["bf16", "workers=4"]) == (Rung(("bf16",), 101.0, 60.0), Rung(("workers=4",), 60.0, 50.0))


def test_two_practices_taken_at_once_are_one_rung():
    trials = [made_trial("base", (), 100.0), made_trial("both", ("a", "b"), 50.0)]
    assert climb(trials, ["b", "a"]) == (Rung(("b", "a"), 100.0, 50.0),)


def test_without_a_way_to_the_winner_there_is_no_waterfall():
    assert climb([made_trial("base", (), 100.0), made_trial("one", ("a",), 50.0)], ["a", "b"]) == ()
    assert climb([], ["a"]) == ()
    assert climb([made_trial("one", ("a",), 50.0)], ["a"]) == ()


def test_failed_trials_are_no_rungs():
    trials = [made_trial("base", (), 100.0), made_trial("oom", ("a",), None, outcome="out-of-memory")]
    assert climb(trials, ["a"]) == ()


def test_a_dropped_practice_is_as_fast_as_the_largest_set_with_it_against_the_same_without():
    trials = [
        made_trial("base", (), 100.0),
        made_trial("one", ("bf16",), 50.0),
        made_trial("both", ("bf16", "tf32"), 40.0),
        made_trial("crashed", ("tf32", "fused"), None, outcome="crash"),
    ]
    assert ratio_with(trials, "bf16") == 2.0  # tf32 never ran alone
    assert ratio_with(trials, "tf32") == 1.25
    assert ratio_with(trials, "fused") is None
