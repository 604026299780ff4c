"""Gradients exchanged during the backward pass: the same numbers to the bit, whichever parameters a rank uses."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scale.two_ranks import on_ranks, on_two_ranks

from vivace.scale import overlap as overlapping
from vivace.scale.gradients import Gradients
from vivace.scale.group import Group

PARAMETERS = 5


def train(group: Group, schedule: list[list[list[int]]], overlap: bool) -> tuple[list[Any], int]:
    """``schedule``: for each step and pass, which parameters each rank uses, as a number of bits by rank."""
    overlapping._FIRST_BUCKET_BYTES = overlapping._BUCKET_BYTES = 40
    gradients = Gradients(group)
    gradients.overlap.wanted = overlap
    generator = torch.Generator().manual_seed(7 + group.rank)
    parameters = [torch.nn.Parameter(torch.ones(3 + number)) for number in range(PARAMETERS)]
    gradients.add(parameters)
    seen = []
    for step in schedule:
        for used in step:
            terms = [
                (parameter * torch.randn(parameter.shape, generator=generator)).sum()
                for number, parameter in enumerate(parameters)
                if used[group.rank] >> number & 1
            ]
            gradients.overlap.begin()
            if terms:
                torch.stack(terms).sum().backward()
            gradients.overlap.end()
        gradients.average()
        seen.append([None if each.grad is None else each.grad.tolist() for each in parameters])
        for parameter in parameters:
            parameter.grad = None
    return seen, gradients.overlap.sent_early


uses = st.lists(st.integers(0, 2**PARAMETERS - 1), min_size=2, max_size=2)
steps = st.lists(st.lists(uses, min_size=1, max_size=3), min_size=1, max_size=3)


@settings(max_examples=15, deadline=None)
@given(steps, st.integers(2, 4))
def test_the_gradients_are_those_without_overlap(schedule: list[list[list[int]]], times: int):
    def work(group: Group) -> Any:
        return [train(group, schedule * times, overlap)[0] for overlap in (False, True)]

    first, second = on_two_ranks(work)
    assert first[0] == first[1] == second[0] == second[1]


def test_buckets_are_sent_while_the_pass_runs_and_once_for_passes_that_accumulate():
    everything = [31, 31]

    def work(group: Group) -> Any:
        each_pass = train(group, [[everything]] * 4, overlap=True)[1]
        accumulating = train(group, [[everything] * 3] * 4, overlap=True)[1]
        return [each_pass, accumulating]

    (each_pass, accumulating), other = on_two_ranks(work)
    assert [each_pass, accumulating] == other
    assert each_pass == accumulating == 2 * 2  # two steps are learned from; then two buckets of 40 bytes or more


def test_every_step_sums_in_the_same_order_so_that_a_resumed_training_has_the_same_bits():
    """The first steps of a start are not sent early, and from three ranks on the place of a number in its bucket
    decides in which order it is summed. Each step here has the gradients of the first."""

    def work(group: Group) -> Any:
        overlapping._FIRST_BUCKET_BYTES = overlapping._BUCKET_BYTES = 500
        seen = []
        for _ in range(2):  # two starts
            gradients = Gradients(group)
            parameters = [torch.nn.Parameter(torch.ones(37 + 11 * number)) for number in range(PARAMETERS)]
            gradients.add(parameters)
            for _ in range(4):
                generator = torch.Generator().manual_seed(group.rank)
                terms = [(each * torch.randn(each.shape, generator=generator)).sum() for each in parameters]
                used = terms if group.rank else terms[:-1]  # no row of rank 0 reaches the last one
                gradients.overlap.begin()
                torch.stack(used).sum().backward()
                gradients.overlap.end()
                gradients.average()
                seen.append([each.grad.tolist() for each in parameters if each.grad is not None])
                for parameter in parameters:
                    parameter.grad = None
        return [seen, gradients.overlap.sent_early]

    for seen, sent_early in on_ranks(4, work):
        assert sent_early
        assert all(step == seen[0] for step in seen)
