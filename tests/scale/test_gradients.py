"""Which gradients are averaged, with a real group of one rank."""

from __future__ import annotations

from pathlib import Path

import torch

from vivace.scale.gradients import Gradients
from vivace.scale.group import Group
from vivace.scale.place import ScalePlace


def test_a_new_gradient_is_seen_even_if_it_takes_the_place_of_an_old_one(tmp_path: Path):
    gradients = Gradients(Group(ScalePlace(0, 1, f"file:{tmp_path}")))
    parameter = torch.nn.Parameter(torch.ones(3))
    gradients.add([parameter])
    for _ in range(50):  # the allocator soon gives the same address again
        parameter.grad = torch.ones(3)
        assert gradients._has_changed(parameter)
        gradients.average()
        assert not gradients._has_changed(parameter)
        parameter.grad.add_(1)
        assert gradients._has_changed(parameter)
        gradients.average()
        parameter.grad = None


def test_a_parameter_is_known_by_itself_and_not_by_its_number(tmp_path: Path):
    gradients = Gradients(Group(ScalePlace(0, 1, f"file:{tmp_path}")))
    for _ in range(50):
        parameter = torch.nn.Parameter(torch.ones(3))
        gradients.add([parameter])
        assert [each is parameter for each in gradients.parameters() if each is not None] == [True]
        del parameter
