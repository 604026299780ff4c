"""Features that older releases of torch lack are done without: their names are taken away from this one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from conftest import Done

from vivace.measure.inside.norms import total_norm
from vivace.practices.attention import Attention

TENSORS = [torch.tensor([3.0, -4.0]), torch.tensor([[12.0]])]


@pytest.mark.parametrize("norm_type", [1.0, 2.0, float("inf")])
def test_norms_of_torch_before_2_6(monkeypatch: pytest.MonkeyPatch, norm_type: float):
    expected = torch.nn.utils.get_total_norm(TENSORS, norm_type=norm_type)
    monkeypatch.delattr(torch.nn.utils, "get_total_norm")
    assert torch.equal(total_norm(TENSORS, norm_type), expected)


COMPILED_WITHOUT_STANCES = """
import torch
del torch.compiler.set_stance
model = torch.compile(torch.nn.Linear(4, 1), backend="eager")
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(40):
    optimizer.zero_grad(); model(torch.ones(2, 4)).sum().backward(); optimizer.step()
"""


def test_a_compiled_model_of_torch_before_2_6_is_measured_without_flops(vivace: Callable[..., Done], tmp_path: Path):
    (tmp_path / "train.py").write_text(COMPILED_WITHOUT_STANCES)
    record = vivace("measure", "--json", "--steps", "5", "--", sys.executable, "train.py").record
    assert (record["status"], record["steps"], record["flops"]) == ("complete", 5, None)
    why = f"this torch ({torch.__version__}) cannot run a compiled model uncompiled for one step"
    assert f"FLOPs not counted: {why}" in record["notes"]


def test_kernels_that_torch_itself_has_off_stay_off():
    """torch 2.4 has those of cuDNN off when it is imported."""
    kernels = torch.backends.cuda
    before = kernels.cudnn_sdp_enabled(), kernels.flash_sdp_enabled()
    change = Attention()
    try:
        kernels.enable_cudnn_sdp(False)
        change.flags()
        kernels.enable_flash_sdp(False)  # the script does that
        change.flags()
        change.model(torch.nn.Linear(1, 1))
        assert (kernels.cudnn_sdp_enabled(), kernels.flash_sdp_enabled()) == (False, True)
    finally:
        kernels.enable_cudnn_sdp(before[0])
        kernels.enable_flash_sdp(before[1])
    assert change.done == "attention: flash kernels on"
