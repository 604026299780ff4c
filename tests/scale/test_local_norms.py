"""Batch norm over each rank's part: the same outputs, gradients and statistics as one process over the same parts."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from scale.two_ranks import on_two_ranks

from vivace.scale import local_norms
from vivace.scale.group import Group
from vivace.scale.shares import Shares


def test_ranks_and_parts_of_one_process_agree():
    torch.manual_seed(0)
    batches = [torch.randn(size, 3, 4, dtype=torch.float64) for size in (6, 5)]
    own = F.batch_norm

    def one_process() -> tuple[list[Any], Any]:
        norm, outputs = torch.nn.BatchNorm1d(3).double(), []
        for batch in batches:
            outputs += local_norms.in_parts(
                own, 2, batch, norm.running_mean, norm.running_var, norm.weight, norm.bias, 0.1, 1e-5
            ).tolist()
        return outputs, [norm.running_mean.tolist(), norm.running_var.tolist()]  # type: ignore[union-attr]

    def ranks(group: Group) -> Any:
        local_norms.keep_local(2, lambda: None)
        local_norms.LocalNorms(group, lambda: True).install()
        norm, outputs = torch.nn.BatchNorm1d(3).double(), []
        for batch in batches:
            shares = Shares(len(batch), group.rank, 2)
            outputs.append(norm(batch[shares.start : shares.start + shares.mine]).tolist())
        before = norm.running_mean.tolist()  # type: ignore[operator, union-attr]
        saved = norm.state_dict()
        return [outputs, before, [saved["running_mean"].tolist(), saved["running_var"].tolist()]]

    outputs, statistics = one_process()
    (first, first_before, first_saved), (second, second_before, second_saved) = on_two_ranks(ranks)
    assert outputs == [*first[0], *second[0], *first[1], *second[1]]
    assert first_before != second_before
    torch.testing.assert_close(torch.tensor(first_saved), torch.tensor(statistics), rtol=1e-12, atol=1e-14)
    assert first_saved == second_saved
