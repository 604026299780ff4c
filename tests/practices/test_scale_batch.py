"""The larger batch and its learning rate: what a loader and an optimizer are made of, and when it is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, RandomSampler, TensorDataset

from vivace.errors import UserError
from vivace.practices.engine.change import NotApplicable
from vivace.practices.engine.registry import parse_words
from vivace.practices.scale_batch import ScaleBatch

DATA = TensorDataset(torch.zeros(100, 1))


def arguments(**more: Any) -> dict[str, Any]:
    return {"dataset": DATA, "batch_size": 10, "sampler": None, "batch_sampler": None, "drop_last": False, **more}


def test_a_loader_gets_the_larger_batch_and_the_warm_up_is_five_of_its_epochs():
    change, given = ScaleBatch("3:linear"), arguments()
    change.loader(given)
    assert given["batch_size"] == 30
    assert change.warm_up_steps == 5 * 4
    assert [change.factor(step) for step in (5, 10, 20, 30)] == [1.5, 2.0, 3.0, 3.0]


def test_a_batch_sampler_of_torchs_own_is_made_again():
    change, given = (
        ScaleBatch("2:none"),
        arguments(batch_size=1, batch_sampler=BatchSampler(RandomSampler(DATA), 8, True)),
    )
    change.loader(given)
    assert (given["batch_sampler"].batch_size, given["batch_sampler"].drop_last) == (16, True)


@pytest.mark.parametrize(
    ("argument", "given", "says"),
    [
        ("20:none", arguments(drop_last=True), "a batch of 200 is more than the 100 samples"),
        ("2:none", arguments(batch_size=None), "makes its own batches"),
        ("2:linear", arguments(dataset=iter(())), "length of an epoch is not known"),
        ("1:none", arguments(), "one time the batch"),
    ],
)
def test_what_cannot_be_scaled_is_refused(argument: str, given: dict[str, Any], says: str):
    with pytest.raises(NotApplicable, match=says):
        ScaleBatch(argument).loader(given)


def test_the_learning_rate_is_scaled_around_each_step_and_the_scripts_own_stays():
    change = ScaleBatch("4:linear:2")
    change.loader(arguments())
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    moved = []
    for _ in range(3):
        before = parameter.item()
        parameter.grad = torch.ones(1)
        change.before_step(optimizer)
        optimizer.step()
        moved.append(before - parameter.item())
        assert optimizer.param_groups[0]["lr"] == 1.0
    assert moved == [2.5, 4.0, 4.0]


def test_no_batch_was_scaled_so_no_learning_rate_is():
    change, optimizer = ScaleBatch("4:sqrt"), torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    change.before_step(optimizer)
    assert optimizer.param_groups[0]["lr"] == 1.0


@pytest.mark.parametrize("word", ["scale_batch=4", "scale_batch=x:linear", "scale_batch=4:cubic", "local_bn=none"])
def test_a_wrong_argument_is_a_sentence(word: str):
    with pytest.raises(UserError):
        parse_words([word])
