"""When a loop counts as settled."""

from __future__ import annotations

from vivace.measure.inside.warmup import WarmupDetector


def steps_until_over(detector: WarmupDetector, durations_s: list[float], loaders: dict | None = None) -> int | None:
    now = 0.0
    for number, duration in enumerate(durations_s, start=1):
        now += duration
        detector.step(now, loaders or {})
        if detector.is_over():
            return number
    return None


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
