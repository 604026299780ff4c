"""Attention written out in many ways: replaced where the result is the same, left with a reason where it is not."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from vivace.practices.graphs.attention_pattern import Unlike
from vivace.practices.graphs.attention_rewrite import Mask, Rewritten, rewrite
from vivace.practices.graphs.backends import Eager

BATCH, HEADS, LENGTH, WIDTH = 2, 3, 10, 8


class Block(nn.Module):
    """Queries, keys and values of (B, H, T, E); ``attend`` is the part under test."""

    def __init__(self, attend: Callable[..., torch.Tensor], dropout: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.qkv = nn.Linear(HEADS * WIDTH, 3 * HEADS * WIDTH)
        self.attend, self.dropout = attend, nn.Dropout(dropout)
        self.register_buffer("causal", torch.ones(1, 1, 16, 16).tril())
        self.register_buffer("minus", torch.full((LENGTH, LENGTH), -math.inf).triu(1))
        self.weights: Any = None

    def forward(self, x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).view(BATCH, LENGTH, 3, HEADS, WIDTH).permute(2, 0, 3, 1, 4)
        return self.attend(self, q, k, v, padding)


def by_name(b, q, k, v, _):
    att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
    att = att.masked_fill(b.causal[:, :, :LENGTH, :LENGTH] == 0, float("-inf"))
    return b.dropout(functional.softmax(att, dim=-1)) @ v


def without_a_mask(_b, q, k, v, _):
    return torch.softmax(torch.matmul(q, k.mT) / WIDTH**0.5, -1).matmul(v)


def scaled_queries(_b, q, k, v, _):
    return ((q * WIDTH**-0.5) @ k.transpose(2, 3)).softmax(dim=3) @ v


def added_buffer(b, q, k, v, _):
    return (q @ k.mT / 2 + b.minus).softmax(-1) @ v


def added_then_scaled(b, q, k, v, _):
    return ((b.minus + q @ k.mT) * 0.5).softmax(-1) @ v


def made_in_forward(_b, q, k, v, _):
    keep = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
    return torch.where(keep, q @ k.mT, -1e9).softmax(-1) @ v


def padded(_b, q, k, v, padding):
    scores = (q @ k.mT).masked_fill(padding[:, None, None, :], float("-inf"))
    return scores.softmax(-1) @ v


def padded_by_numbers(_b, q, k, v, padding):
    return (q @ k.mT - padding[:, None, None, :].float() * 1e9).softmax(-1) @ v


def causal_and_padded(b, q, k, v, padding):
    scores = (q @ k.mT).masked_fill(b.causal[:, :, :LENGTH, :LENGTH] == 0, -1e9)
    return scores.masked_fill(padding[:, None, None, :], -1e9).softmax(-1) @ v


def kept_in_place(b, q, k, v, _):
    scores = q @ k.mT
    scores *= 0.25
    scores += b.minus
    return scores.softmax(-1) @ v


def one_head_of_keys(_b, q, k, v, _):
    return (q @ k[:, :1].mT).softmax(-1) @ v[:, :1]


def flat(_b, q, k, v, _):
    q, k, v = (t.reshape(BATCH * HEADS, LENGTH, WIDTH) for t in (q, k, v))
    return torch.bmm(torch.bmm(q, k.transpose(1, 2)).softmax(-1), v)


def flat_with_a_mask(_b, q, k, v, padding):
    q, k, v = (t.reshape(BATCH * HEADS, LENGTH, WIDTH) for t in (q, k, v))
    mask = padding.float().mul(-1e9).repeat_interleave(HEADS, 0)[:, None, :].expand(-1, LENGTH, -1)
    return torch.bmm(torch.baddbmm(mask, q, k.transpose(1, 2)).softmax(-1), v)


def einsum(_b, q, k, v, _):
    scores = torch.einsum("b h i d, b h j d -> b h i j", q, k) * 0.3
    return torch.einsum("bhij,bhjd->bhid", scores.softmax(dim=-1), v)


def einsum_time_first(_b, q, k, v, _):
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k)
    return torch.einsum("bhqk,bkhd->bqhd", (scores / 3).softmax(-1), v)


def in_fp32(_b, q, k, v, _):
    return functional.softmax((q @ k.mT).float(), dim=-1, dtype=torch.float32).to(q.dtype) @ v


def learned_bias(b, q, k, v, _):
    return (q @ k.mT + b.qkv.weight[:LENGTH, :LENGTH]).softmax(-1) @ v


ALIKE = [
    (by_name, Mask.CAUSAL),
    (without_a_mask, Mask.NONE),
    (scaled_queries, Mask.NONE),
    (added_buffer, Mask.CAUSAL),
    (added_then_scaled, Mask.CAUSAL),
    (made_in_forward, Mask.CAUSAL),
    (padded, Mask.GIVEN),
    (padded_by_numbers, Mask.GIVEN),
    (causal_and_padded, Mask.GIVEN),
    (kept_in_place, Mask.CAUSAL),
    (one_head_of_keys, Mask.NONE),
    (flat, Mask.NONE),
    (flat_with_a_mask, Mask.GIVEN),
    (einsum, Mask.NONE),
    (einsum_time_first, Mask.NONE),
    (in_fp32, Mask.NONE),
    (learned_bias, Mask.GIVEN),
]


class Captured:
    """A block whose graphs were rewritten, and what became of each."""

    def __init__(self, block: nn.Module) -> None:
        self.block, self.done = block, list[Rewritten]()
        torch._dynamo.reset()
        block.compile(backend=Eager(self._rewrite), dynamic=False)

    def _rewrite(self, module: Any, inputs: Any) -> Rewritten:
        self.done.append(rewrite(module, inputs, {id(buffer) for buffer in self.block.buffers()}))
        return self.done[-1]

    @property
    def squares(self) -> int:
        """Softmaxes that are left in the graphs."""
        return sum("softmax" in node.name for done in self.done for node in done.module.graph.nodes)


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    padding = torch.zeros(BATCH, LENGTH, dtype=torch.bool)
    padding[0, 7:] = True
    return torch.randn(BATCH, LENGTH, HEADS * WIDTH), padding


@pytest.mark.parametrize(("attend", "mask"), ALIKE, ids=[attend.__name__ for attend, _ in ALIKE])
def test_the_result_and_the_gradients_stay(attend: Any, mask: Mask):
    plain, captured = Block(attend), Captured(Block(attend))
    results = [block(*inputs()) for block in (plain, captured.block)]
    assert [done.masks for done in captured.done] == [[mask]]
    assert captured.squares == 0
    torch.testing.assert_close(results[0], results[1], rtol=1e-4, atol=1e-5)
    for result in results:
        result.square().sum().backward()
    torch.testing.assert_close(plain.qkv.weight.grad, captured.block.qkv.weight.grad, rtol=1e-3, atol=1e-4)


def returned(_b, q, k, v, _):
    weights = (q @ k.mT).softmax(-1)
    return (weights @ v).mean() + weights.sum()


def stored(b, q, k, v, _):
    b.weights = (q @ k.mT).softmax(-1)
    return b.weights @ v


def over_another_dimension(_b, q, k, v, _):
    return (q @ k.mT).softmax(-2) @ v


def weighted_afterwards(_b, q, k, v, padding):
    return ((q @ k.mT).softmax(-1) * padding[:, None, None, :]) @ v


def gates(_b, q, _k, v, _):
    return q.softmax(-1) * v


def values_first(_b, q, k, v, _):
    return v.mT @ (q @ k.mT).softmax(-1)


def filled_with_little(_b, q, k, v, padding):
    return (q @ k.mT).masked_fill(padding[:, None, None, :], -2.0).softmax(-1) @ v


def no_rows_left(_b, q, k, v, _):
    never = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(0)
    return (q @ k.mT).masked_fill(never, -math.inf).softmax(-1).nan_to_num() @ v


@pytest.mark.parametrize(
    ("attend", "why"),
    [
        (returned, Unlike.SCORES_USED),
        (stored, Unlike.SCORES_USED),
        (over_another_dimension, Unlike.NOT_LAST),
        (weighted_afterwards, Unlike.NOT_WEIGHTS),
        (gates, Unlike.NOT_WEIGHTS),
        (values_first, Unlike.NOT_WEIGHTS),
        (filled_with_little, Unlike.MASK),
        (no_rows_left, Unlike.NOT_WEIGHTS),
    ],
    ids=lambda each: each.__name__ if callable(each) else each.name,
)
def test_what_is_not_the_same_is_left(attend: Any, why: Unlike):
    plain, captured = Block(attend), Captured(Block(attend))
    results = [block(*inputs()) for block in (plain, captured.block)]
    assert [(done.masks, done.left) for done in captured.done] == [([], [why])]
    assert torch.equal(*results)


def test_a_replacement_that_differs_is_not_made(monkeypatch: pytest.MonkeyPatch):
    """As if the pattern were misread: the comparison notices."""
    from vivace.practices.graphs import attention_rewrite

    monkeypatch.setattr(attention_rewrite, "_mask_kind", lambda *_: (Mask.NONE, set()))
    plain, captured = Block(by_name), Captured(Block(by_name))
    assert torch.equal(plain(*inputs()), captured.block(*inputs()))
    assert [(done.masks, done.left) for done in captured.done] == [([], [Unlike.DIFFERS])]


def test_a_mask_that_changes_is_noticed():
    plain, captured = Block(by_name), Captured(Block(by_name))
    captured.block(*inputs())
    for block in (plain, captured.block):
        block.causal.copy_(torch.ones(16, 16).tril(4))
    assert torch.equal(plain(*inputs()), captured.block(*inputs()))
    captured.block.load_state_dict(Block(by_name).state_dict())
    torch.testing.assert_close(Block(by_name)(*inputs()), captured.block(*inputs()), rtol=1e-4, atol=1e-5)


def test_dropout_is_handed_over_and_draws_the_same_in_plain_kernels():
    plain, captured = Block(by_name, 0.5), Captured(Block(by_name, 0.5))
    torch.manual_seed(5)
    wanted = plain(*inputs())
    torch.manual_seed(5)
    torch.testing.assert_close(wanted, captured.block(*inputs()), rtol=1e-4, atol=1e-5)
    assert captured.done[0].drops
    for block in (plain, captured.block):
        block.eval()
    torch.testing.assert_close(plain(*inputs()), captured.block(*inputs()), rtol=1e-4, atol=1e-5)


def test_bf16_under_autocast():
    plain, captured = Block(by_name), Captured(Block(by_name))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        results = [block(*inputs()) for block in (plain, captured.block)]
    assert [done.masks for done in captured.done] == [[Mask.CAUSAL]]
    assert results[1].dtype is results[0].dtype is torch.bfloat16
    torch.testing.assert_close(results[0].float(), results[1].float(), rtol=0.05, atol=0.05)


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(24, 3, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attention(x, x, x)[0]


def test_weights_that_torchs_own_layer_computes_and_nobody_reads():
    torch.manual_seed(0)
    plain = Layers()
    captured = Captured(Layers())
    captured.block.load_state_dict(plain.state_dict())
    x = inputs()[0]
    torch.testing.assert_close(plain(x), captured.block(x), rtol=1e-4, atol=1e-5)
    assert [done.masks for done in captured.done] == [[Mask.OF_TORCH]]
