"""The global batch of a step is the same on every layout."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from vivace.errors import UserError
from vivace.records.layout import Layout
from vivace.train.batches import make_batches
from vivace.train.settings import TrainSettings, with_changes


def share(settings: TrainSettings, data_rank: int, context_rank: int, step: int) -> torch.Tensor:
    context = SimpleNamespace(get_local_rank=lambda: context_rank)
    meshes: Any = SimpleNamespace(data_rank=data_rank, context=context, device=torch.device("cpu"))
    inputs, targets = make_batches(settings, meshes).share(step)
    return torch.stack((inputs, targets))


@pytest.mark.parametrize("source", ["made up", "file"])
def test_shares_make_up_the_batch_of_one_process(source: str, tmp_path: Path):
    tokens = tmp_path / "tokens.bin"
    np.arange(1000, dtype=np.uint16).tofile(tokens)
    changes = ["data.seq_len=16", "sizes.vocab=1000", *([f"data.tokens={tokens}"] if source == "file" else [])]
    base = with_changes(TrainSettings(global_batch=8), changes)
    split = base.model_copy(update={"layout": Layout(data=4, context=2)})
    for step in (0, 3, 20):
        whole = share(base, 0, 0, step)
        parts = {place: share(split, *place, step) for place in itertools.product(range(4), range(2))}
        for data_rank in range(4):
            first, second = parts[data_rank, 0], parts[data_rank, 1]
            in_order = torch.cat((first[..., :4], second, first[..., 4:]), dim=-1)
            assert torch.equal(in_order, whole[:, 2 * data_rank : 2 * data_rank + 2])
    if source == "file":
        assert torch.equal(whole[1], whole[0] + 1)  # the target is the next token


def test_an_epoch_sees_every_window_once(tmp_path: Path):
    tokens = tmp_path / "tokens.bin"
    np.arange(161, dtype=np.uint16).tofile(tokens)
    base = with_changes(TrainSettings(global_batch=5), ["data.seq_len=16", "sizes.vocab=200", f"data.tokens={tokens}"])
    for steps in ((0, 1), (2, 3)):
        starts = torch.cat([share(base, 0, 0, step)[0, :, 0] for step in steps])
        assert sorted(starts.tolist()) == list(range(0, 160, 16))
    assert share(base, 0, 0, 0).tolist() != share(base, 0, 0, 2).tolist()


def test_tokens_that_the_model_does_not_know_are_refused(tmp_path: Path):
    tokens = tmp_path / "tokens.bin"
    np.full(100, 999, dtype=np.uint16).tofile(tokens)
    base = with_changes(TrainSettings(), ["data.seq_len=16", f"data.tokens={tokens}"])
    with pytest.raises(UserError, match="token 999, and the model knows 512"):
        share(base, 0, 0, 0)
    with pytest.raises(UserError, match="cannot be read as tokens"):
        share(with_changes(base, [f"data.tokens={tmp_path / 'none'}"]), 0, 0, 0)
