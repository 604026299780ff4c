"""Which optimizer steps end a training step."""

from __future__ import annotations

from vivace.measure.inside.steps.cycles import Cycles


class Optimizer:
    pass


def ends(cycles: Cycles, order: list[Optimizer]) -> list[bool]:
    return [cycles.step(optimizer) for optimizer in order]


def test_one_optimizer_ends_every_step():
    assert ends(Cycles(), [Optimizer()] * 1) == [True]
    one = Optimizer()
    assert ends(Cycles(), [one] * 4) == [True] * 4


def test_of_two_the_second_ends_the_step():
    cycles, critic, generator = Cycles(), Optimizer(), Optimizer()
    ends(cycles, [critic, generator])
    assert cycles.changed
    assert ends(cycles, [critic, generator, critic, generator]) == [False, True, False, True]
    assert not cycles.changed


def test_the_rarer_one_ends_the_step():
    cycles, critic, generator = Cycles(), Optimizer(), Optimizer()
    ends(cycles, [critic] * 5 + [generator])
    assert ends(cycles, [critic] * 5 + [generator]) == [False] * 5 + [True]


def test_an_optimizer_that_stepped_once_does_not_hold_everything_up():
    cycles, main, once = Cycles(), Optimizer(), Optimizer()
    ends(cycles, [main] * 10 + [once])
    assert sum(ends(cycles, [main] * 100)) == 50
    assert ends(cycles, [main] * 3) == [True] * 3


def test_a_new_optimizer_in_place_of_a_dead_one_takes_over():
    cycles = Cycles()
    for _ in range(20):  # ids of the dead are reused
        assert ends(cycles, [Optimizer()]) == [True]
