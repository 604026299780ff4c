"""What is kept of the first optimizer steps: gradients and updates by hand, in this process and in a real one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from conftest import SCRIPTS
from torch import nn

from vivace.measure.inside.comparing.first_steps import STEPS, FirstSteps
from vivace.measure.inside.comparing.sketch import BUCKETS
from vivace.records.first_steps import FirstSteps as Record
from vivace.tune.trials import TrialSettings, run_trial


def train(steps: int = STEPS + 2, lr: float = 0.1, freeze: str = "", scale: float | None = None, model=None):
    """A few steps of plain SGD, with what is looked at before each."""
    torch.manual_seed(0)
    model = model or nn.Sequential(nn.Linear(6, 5), nn.Dropout(0.5), nn.Linear(5, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    look = FirstSteps(wanted=True)
    for step in range(steps):
        x = torch.full((4, 6), float(step + 1))
        look.note_forward(model, (x,), {})
        optimizer.zero_grad()
        model(x).square().mean().backward()
        first = next(model.parameters())
        if freeze == "no gradient":
            first.grad.zero_()
        if scale is not None:  # as a GradScaler leaves it to a fused optimizer
            for p in model.parameters():
                p.grad.mul_(scale)
            optimizer.grad_scale = torch.tensor(scale)
        look.before(optimizer)
        if scale is not None:
            for p in model.parameters():
                p.grad.div_(scale)
            del optimizer.grad_scale
        before = first.detach().clone()
        optimizer.step()
        if freeze == "put back":
            first.data.copy_(before)
    found = look.as_dict()
    return Record(**found) if found else None


def test_the_update_of_plain_sgd_is_its_gradient_times_the_learning_rate():
    found = train()
    assert len(found.steps) == STEPS
    for step in found.steps:
        assert step.settings[0]["lr"] == pytest.approx(0.1)
        for gradient, update in zip(step.gradient, step.update, strict=True):
            assert update == pytest.approx([-0.1 * value for value in gradient], abs=1e-6)
    first, later = found.steps[0], found.steps[1]
    assert len(first.gradient) == 4  # a part for each parameter
    assert first.part_names == ("0.weight", "0.bias", "2.weight", "2.bias")
    assert len(first.gradient[0]) * 4 <= 512 < 2 * len(first.gradient[0]) * 4
    assert (len(later.gradient), len(later.gradient[0])) == (1, BUCKETS // 2)


def test_norms_are_those_of_the_gradients():
    torch.manual_seed(3)
    model = nn.Linear(6, 2)
    found = train(model=model, steps=1)
    assert found.steps[0].update == ()  # there was no second step to see it by
    expected = [float(p.grad.norm()) for p in model.parameters()]
    assert found.steps[0].norms == pytest.approx(expected, rel=1e-6)


def test_two_runs_are_equal_to_the_bit_and_another_learning_rate_is_not():
    first, second, faster = train(), train(), train(lr=0.11)
    assert first == second
    assert faster.steps[0].gradient_digest == first.steps[0].gradient_digest
    assert faster.steps[0].update_digest != first.steps[0].update_digest


def test_a_parameter_that_stands_still_is_named():
    found = train(freeze="put back").steps[0]
    assert (found.zero_gradient, found.unchanged, found.stand_still) == (0, 1, ("0.weight",))
    found = train(freeze="no gradient").steps[0]
    assert (found.zero_gradient, found.unchanged) == (1, 0)  # counted once, by its gradient
    assert (train().steps[0].zero_gradient, train().steps[0].unchanged) == (0, 0)


def test_gradients_that_a_fused_optimizer_will_unscale_count_unscaled():
    assert train(scale=1024.0).steps[0].norms == pytest.approx(train().steps[0].norms, rel=1e-6)


def test_forwards_tell_batches_and_dropouts_apart():
    found = train()
    assert len({forward.digest for forward in found.forwards}) == len(found.forwards)
    assert (found.forwards[0].dropouts, found.forwards[0].dropout_sum) == (1, 0.5)


def test_many_parameters_become_neighbours_of_one_part():
    model = nn.Sequential(*[nn.Linear(6, 6) for _ in range(40)], nn.Linear(6, 3))
    step = train(model=model, steps=2).steps[0]
    assert step.parameters == 82
    assert len(step.gradient) == len(step.norms) == len(step.part_names) == 32
    assert step.part_names[0] == "0.weight and 2 more"


def test_nothing_is_kept_once_the_window_is_open_nor_where_it_was_not_asked_for():
    look = FirstSteps(wanted=False)
    assert look.before(None) is False
    assert look.as_dict() is None


@pytest.mark.parametrize("script", ["gan.py", "accumulation.py"])
@pytest.mark.usefixtures("forked_scripts")
def test_of_a_real_training(script: str, tmp_path: Path):
    """Twice the same script with the same seed: equal to the bit, and each optimizer looked at by itself."""
    command = [sys.executable, str(SCRIPTS / script)]
    asked = TrialSettings(steps=3, warmup_steps=6, grad_norms=True)
    runs = [
        run_trial(command, (), tmp_path / name, asked, lambda *_: None, lambda _: None).measurement for name in "ab"
    ]
    assert runs[0] is not None
    assert runs[1] is not None
    found = runs[0].first_steps
    assert found is not None
    assert found == runs[1].first_steps
    optimizers = 2 if script == "gan.py" else 1
    assert [sum(step.optimizer == o for step in found.steps) for o in range(optimizers)] == [STEPS] * optimizers
    assert all(step.update and step.unchanged == 0 for step in found.steps)
    assert found.forwards[0].after_steps == 0  # the batch of the very first step is seen
    assert runs[0].backwards[-1] == (2 if script == "gan.py" else 4)
