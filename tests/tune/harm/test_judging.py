"""Does a tuned job still train the same? Verdicts on trajectories written by hand."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

from practices.evidence import measurement

from vivace.records.measurement import Measurement
from vivace.tune.harm import Claims, judge

STEPS = 20
EXACT = Claims(same_losses=True)
APART = Claims(other_draws=("workers",))  # other augmentations are drawn: only the seed band is left


def run(seed: int, moved: float = 0.0, norms: dict[int, float] | None = None, last: float | None = None) -> Measurement:
    noise = random.Random(seed)
    losses = [2.0 * 0.95**step + noise.gauss(0, 0.1) + moved for step in range(STEPS)]
    if last is not None:
        losses[-1] = last
    return measurement(trajectory=tuple(losses), gradient_norms=norms or {})


def test_identical_losses_are_the_same():
    harm = judge([(run(0), run(0)), (run(1), run(1))], (run(0), run(0)), EXACT)
    assert harm.verdict == "same losses"
    assert harm.moved == 0


def test_rounding_that_moves_less_than_another_seed_is_inside_the_band():
    harm = judge([(run(0), run(0, 0.01)), (run(1), run(1, 0.01))], (run(0), run(0)), APART)
    assert harm.verdict == "inside the band"
    assert harm.moved is not None
    assert harm.band is not None
    assert 0.009 < harm.moved < 0.011 < harm.band


def test_a_shift_larger_than_another_seeds_is_outside():
    harm = judge([(run(0), run(0, 0.5)), (run(1), run(1, 0.5))], (run(0), run(0)), APART)
    assert harm.verdict == "outside the band"


def test_a_loss_that_becomes_nan_is_harm_whatever_the_band():
    harm = judge([(run(0), run(0, last=math.nan))], None, APART)
    assert harm.verdict == "outside the band"


def test_losses_that_are_not_finite_without_any_practice_accuse_none():
    for tuned in (run(0), run(0, last=math.nan)):
        harm = judge([(run(0, last=math.nan), tuned)], None, APART, more_baselines=[run(1)])
        assert harm.verdict == "not comparable"
        assert "own losses are not finite" in harm.says


def test_without_another_seed_that_is_said():
    assert "no other seed" in judge([(run(0), run(0, 0.001))], None, APART).says


def test_one_pair_is_judged_by_norms_too_where_the_searchs_baseline_has_them():
    usual, wild = {0: 1.0, 1: 1.1}, {0: 50.0, 1: 50.0}
    again = run(1, norms={0: 1.2, 1: 1.0})
    pair = (run(0, norms=usual), run(0, 0.001, norms=wild))
    assert judge([pair], None, APART, more_baselines=[again]).verdict == "outside the band"
    assert judge([pair], None, APART, more_pairs=[(again, run(1, 0.001))]).verdict == "outside the band"


def test_an_exact_practice_must_repeat_a_baseline_that_repeats_itself():
    harm = judge([(run(0), run(0, 0.3)), (run(1), run(1, 0.3))], (run(0), run(0)), EXACT)
    assert harm.verdict == "outside the band"
    assert "should be the same" in harm.says


def test_an_exact_practice_may_not_move_them_at_all_where_the_baseline_repeats_itself():
    """Less than another seed does is still not the same; a baseline that does not repeat itself cannot ask for it."""
    pairs = [(run(0), run(0, 0.005)), (run(1), run(1, 0.005))]
    strict = judge(pairs, (run(0), run(0)), EXACT)
    assert strict.verdict == "outside the band"
    assert "should be the same" in strict.says
    assert judge(pairs, (run(0), run(0, 0.001)), EXACT).verdict == "inside the band"
    assert judge(pairs, (run(0), run(0)), APART).verdict == "inside the band"  # other augmentations are drawn


def test_a_run_that_is_as_far_away_as_another_seeds_is_no_harm_unless_it_ends_higher():
    """Training amplifies rounding until a run is as unlike its twin as another seed's is."""
    pairs = [(run(0), run(5)), (run(1), run(6))]
    assert judge(pairs, None, APART).verdict == "inside the band"
    worse = [(run(0), run(0, 0.15)), (run(1), run(1, 0.15))]
    harm = judge(worse, None, APART)
    assert harm.verdict == "outside the band"
    assert "end higher" in harm.says


def test_a_spike_is_not_where_losses_end():
    """A ResNet-50 at its full learning rate from the first step on: every run jumps, here and there."""
    losses = json.loads((Path(__file__).parents[1] / "data" / "unstable_losses.json").read_text())
    runs = {name: measurement(trajectory=tuple(losses[name])) for name in losses if name != "source"}
    pair, again = (runs["baseline"], runs["tuned"]), runs["another_seed"]
    assert judge([pair], None, APART, more_baselines=[again]).verdict == "inside the band"
    twin = (again, runs["another_seed_tuned"])
    assert judge([pair], None, APART, more_pairs=[twin]).verdict == "inside the band"
    worse = measurement(trajectory=tuple(loss + 2 for loss in losses["tuned"]))
    assert judge([(pair[0], worse)], None, APART, more_baselines=[again]).verdict == "outside the band"


def test_a_pair_of_the_search_counts_like_a_round_and_needs_no_norms():
    unlucky, fine = (run(0, norms={0: 1.0}), run(0, 0.13, norms={0: 1.1})), (run(1), run(1, -0.01))
    harm = judge([unlucky], None, APART, more_pairs=[fine])
    assert (harm.verdict, harm.rounds, harm.seeds) == ("inside the band", 1, 2)
    assert harm.norm_moved is not None
    assert judge([unlucky], None, APART, more_baselines=[run(1)]).verdict == "outside the band"
    assert judge([(run(0), run(0))], (run(0), run(0)), EXACT, more_pairs=[fine]).verdict == "outside the band"
    no_losses = (measurement(trajectory=()), measurement(trajectory=()))
    assert judge([(run(0), run(0))], None, EXACT, more_pairs=[no_losses]).verdict == "same losses"


def test_same_losses_are_the_same_in_every_round():
    pairs = [(run(0), run(0)), (run(1), run(1)), (run(2), run(2, 0.01))]
    assert judge(pairs, None, APART).verdict == "inside the band"


def test_lower_losses_are_no_harm():
    assert judge([(run(0), run(0, -0.12)), (run(1), run(1, -0.12))], None, APART).verdict == "inside the band"


def test_clipped_gradients_have_no_band_of_their_own():
    """Norms of 1 ± 1e-8 after clipping: the seventh digit proves nothing."""
    first, second = {0: 1.0, 1: 1.0}, {0: 1.00000008, 1: 0.99999999}
    pairs = [(run(0, norms=first), run(0, 0.001, norms=second)), (run(1, norms=first), run(1, 0.001, norms=second))]
    assert judge(pairs, None, APART).verdict == "inside the band"


def test_more_baselines_make_the_band():
    """One run against its twin, the band from baselines of other seeds."""
    assert judge([(run(0), run(0, 0.01))], None, APART, more_baselines=[run(1), run(2)]).verdict == "inside the band"
    assert judge([(run(0), run(0, 0.9))], None, APART, more_baselines=[run(1), run(2)]).verdict == "outside the band"


def test_gradient_norms_count_too():
    wild = {0: 9.0, 1: 9.0}
    pairs = [
        (run(0, norms={0: 1.0, 1: 1.1}), run(0, 0.001, norms=wild)),
        (run(1, norms={0: 1.2, 1: 1.0}), run(1, 0.001, norms=wild)),
    ]
    assert judge(pairs, None, APART).verdict == "outside the band"


def test_one_pair_has_a_band_from_a_baseline_with_another_seed_and_needs_no_norms_of_it():
    pair = (run(0, norms={0: 1.0, 1: 1.1}), run(0, -0.06, norms={0: 1.0, 1: 1.2}))
    harm = judge([pair], None, APART, more_baselines=[run(1)])
    assert harm.verdict == "inside the band"
    assert judge([pair], None, APART).verdict == "outside the band"
    assert harm.band is not None
    assert harm.norm_moved is not None
    assert harm.norm_band is None


def test_clipped_gradients_all_have_one_norm_which_says_nothing():
    one = {0: 1.0, 1: 1.0}
    pairs = [(run(n, norms=one), run(n, 0.001, norms={0: 1.0, 1: 1.0 + 1e-6})) for n in range(2)]
    harm = judge(pairs, None, APART)
    assert (harm.verdict, harm.norm_moved, harm.norm_band) == ("inside the band", None, None)
    assert "norms" not in harm.says


def test_another_baseline_that_cannot_be_compared_does_not_decide():
    pair = (run(0), run(0, -0.06))
    for odd in (measurement(trajectory=()), run(1, last=float("nan"))):
        assert judge([pair], None, APART, more_baselines=[odd, run(1)]).verdict == "inside the band"


def test_reruns_that_never_differ_leave_a_stated_tolerance():
    near = judge([(run(0), run(0, 0.001))], (run(0), run(0)), APART)
    far = judge([(run(0), run(0, 0.2))], (run(0), run(0)), APART)
    assert (near.verdict, far.verdict) == ("inside the band", "outside the band")
    assert "of their size" in near.says


def test_without_losses_nothing_is_claimed():
    empty = measurement(trajectory=())
    assert judge([(empty, empty)], None, EXACT).verdict == "not comparable"
