"""When a loop counts as settled."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vivace.measure.inside.facts.supply import Supply
from vivace.measure.inside.stages.detector import WarmupDetector


def steps_until_over(
    detector: WarmupDetector,
    durations_s: list[float],
    loaders: dict | None = None,
    supplies: list[Supply | None] | None = None,
) -> int | None:
    now = 0.0
    for number, duration in enumerate(durations_s, start=1):
        now += duration
        detector.step(now, loaders or {}, supplies[number - 1] if supplies else None)
        if detector.is_over():
            return number
    return None


def supplies_of_a_loader(workers: int, prefetch: int, load_s: float, step_s: float, steps: int) -> list[Supply]:
    """A full queue at first; each worker takes ``load_s`` for a batch, each step uses one and then asks for another."""
    free_at_s = [0.0] * workers
    there_at_s = [0.0] * (workers * prefetch)
    supplies, now_s = [], 0.0
    for step in range(steps):
        now_s = max(now_s, there_at_s[step])
        worker = step % workers
        free_at_s[worker] = max(free_at_s[worker], now_s) + load_s
        there_at_s.append(free_at_s[worker])
        now_s += step_s
        ready = sum(at_s <= now_s for at_s in there_at_s[step + 1 :])
        supplies.append(Supply(ready, workers * prefetch - ready, workers))
    return supplies


def test_over_when_the_last_three_steps_agree():
    slow_start = [30.0, 5.0, 1.0, 1.05, 0.95, 1.0]
    assert steps_until_over(WarmupDetector(None, several_ranks=False), slow_start) == 5


def test_gives_up_on_a_loop_that_never_settles():
    restless = [1.0, 2.0] * 50
    assert steps_until_over(WarmupDetector(None, several_ranks=False), restless) == 20


def test_a_set_number_is_kept_whatever_the_times():
    assert steps_until_over(WarmupDetector(7, several_ranks=False), [1.0] * 20) == 7


def test_waits_until_the_workers_buffer_is_used_up():
    loaders = {"1": {"num_workers": 8, "prefetch_factor": 2}}
    assert steps_until_over(WarmupDetector(None, several_ranks=False), [1.0] * 30, loaders) == 16


def test_ranks_agree_on_a_number_without_looking_at_their_clocks():
    even, restless = [1.0] * 30, [1.0, 2.0] * 15
    assert steps_until_over(WarmupDetector(None, several_ranks=True), even) == 10
    assert steps_until_over(WarmupDetector(None, several_ranks=True), restless) == 10


def test_a_queue_that_falls_is_waited_for_until_it_is_empty():
    """A batch every 50 ms from fifteen workers, used every 37 ms: the queue stands still for fifteen steps at times."""
    supplies = supplies_of_a_loader(15, 2, load_s=0.75, step_s=0.037, steps=100)
    detector = WarmupDetector(None, several_ranks=False)
    over = steps_until_over(detector, [0.037] * 100, {"1": {"num_workers": 15, "prefetch_factor": 2}}, supplies)
    assert over == 1 + next(step for step, supply in enumerate(supplies) if supply.ready <= 1)
    assert not detector.cut_short()


def test_a_queue_too_long_to_wait_for_is_cut_short():
    falling = [Supply(1000 - step, 48 + step, 48) for step in range(400)]
    for step_s, last in ((0.001, 4 + 200), (1.0, 4 + 8)):
        detector = WarmupDetector(None, several_ranks=False)
        assert steps_until_over(detector, [step_s] * 400, None, falling) == last
        assert detector.cut_short()


def test_an_epoch_with_few_batches_left_is_not_used_up_by_waiting():
    falling = [Supply(100 - step, 10 + step, 4, left=120 - step) for step in range(120)]
    detector = WarmupDetector(None, several_ranks=False, steps_after=60)
    assert steps_until_over(detector, [0.01] * 120, None, falling) == 61
    assert detector.cut_short()


def test_a_stall_of_the_training_does_not_make_a_falling_queue_level():
    """Meanwhile the workers go on: ten batches more are ready, and the queue falls on from there."""
    counts = [60 - step + (10 if step >= 24 else 0) for step in range(70)]
    falling = [Supply(max(0, count), 30, 4) for count in counts]
    times_s = [0.01] * 24 + [0.2] + [0.01] * 45
    detector = WarmupDetector(None, several_ranks=False)
    over = steps_until_over(detector, times_s, None, falling)
    assert over is not None
    assert falling[over - 1].ready <= 1


def test_a_queue_that_stays_level_is_not_waited_for():
    level = [Supply(10, 10, 2)] * 100
    detector = WarmupDetector(None, several_ranks=False)
    assert steps_until_over(detector, [0.01] * 100, None, level) == 20
    assert not detector.cut_short()


def test_the_end_of_an_epoch_says_nothing_about_the_queue():
    detector = WarmupDetector(None, several_ranks=False)
    assert steps_until_over(detector, [0.01] * 9, None, [Supply(9, 9, 4)] * 8 + [None]) == 9


def test_set_steps_and_several_ranks_do_not_look_at_the_queue():
    falling = [Supply(100 - step, 10 + step, 4) for step in range(50)]
    for detector, over in (
        (WarmupDetector(3, several_ranks=False), 3),
        (WarmupDetector(None, several_ranks=True), 10),
    ):
        assert steps_until_over(detector, [0.01] * 50, None, falling) == over
        assert not detector.cut_short()


unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
_SUPPLY = st.none() | st.builds(Supply, st.integers(0, 100), st.integers(0, 100), st.integers(1, 20))


@unhurried
@given(
    st.lists(st.tuples(st.floats(1e-4, 10.0), _SUPPLY), min_size=300, max_size=300),
    st.integers(0, 60),
    st.integers(1, 4),
)
def test_never_before_the_buffer_is_used_and_always_by_the_bound(steps: list, workers: int, prefetch: int):
    durations_s, supplies = [duration for duration, _ in steps], [supply for _, supply in steps]
    loaders = {"1": {"num_workers": workers, "prefetch_factor": prefetch}}
    over = steps_until_over(WarmupDetector(None, several_ranks=False), durations_s, loaders, supplies)
    buffered = min(48, workers * prefetch)
    assert over is not None
    assert max(4, buffered) <= over <= max(20, buffered) + 200


@unhurried
@given(st.integers(1, 16), st.integers(1, 15), st.floats(1.25, 5.0))
def test_a_loader_that_falls_behind_is_never_taken_for_one_that_keeps_up(workers: int, prefetch: int, slower: float):
    supplies = supplies_of_a_loader(workers, prefetch, load_s=0.01 * workers * slower, step_s=0.01, steps=300)
    detector = WarmupDetector(None, several_ranks=False)
    loaders = {"1": {"num_workers": workers, "prefetch_factor": prefetch}}
    over = steps_until_over(detector, [0.01] * 300, loaders, supplies)
    assert over is not None
    assert supplies[over - 1].ready <= 1 or detector.cut_short()


@unhurried
@given(st.integers(1, 16), st.integers(2, 15), st.floats(0.01, 0.95))
def test_a_loader_that_keeps_up_costs_few_steps(workers: int, prefetch: int, faster: float):
    supplies = supplies_of_a_loader(workers, prefetch, load_s=0.01 * workers * faster, step_s=0.01, steps=300)
    detector = WarmupDetector(None, several_ranks=False)
    loaders = {"1": {"num_workers": workers, "prefetch_factor": prefetch}}
    over = steps_until_over(detector, [0.01] * 300, loaders, supplies)
    assert over is not None
    assert over <= max(20, min(48, workers * prefetch)) + workers
    assert not detector.cut_short()
