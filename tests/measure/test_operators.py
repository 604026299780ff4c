"""What the operators of one step say: tensors that the host makes and then copies, with what making them takes."""

from __future__ import annotations

import torch

from vivace.measure.inside.counting.flops import FlopCount
from vivace.measure.inside.counting.operators import OperatorWatch


def test_a_tensor_made_on_the_host_and_copied_is_remembered_with_its_line_and_time():
    count = FlopCount(lambda: "elsewhere")
    with count:
        for _ in range(2):
            torch.randn(256, 1024).to("meta")  # stands for a GPU
        torch.ones(8)  # stays
    (spot,) = count.operators.as_dict()["host_made"]
    assert spot["file"] == __file__
    assert (spot["copies"], spot["mib"]) == (2, 2.0)
    assert spot["made_ms"] > 0


def test_what_it_took_to_make_counts_once_however_often_it_is_copied():
    watch = OperatorWatch()
    made = torch.ones(1000)
    watch.see("ones", (), made, "elsewhere", seconds=0.002)
    for _ in range(24):
        watch.see("_to_copy", (made,), made.to("meta"), "elsewhere", seconds=0.1)
    (spot,) = watch.as_dict()["host_made"]
    assert (spot["copies"], spot["made_ms"]) == (24, 2.0)
