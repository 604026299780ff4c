"""Tensor plans for Hugging Face models: outputs and gradients equal those of one process; others are refused."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor

from benchmarks.forked_ranks import on_ranks
from vivace.errors import UserError
from vivace.parallel.huggingface import huggingface_plan, split_huggingface
from vivace.parallel.norm import settle_gradients


class Layer(nn.Module):
    """As Qwen 3 names and shapes its parts: norms of each head's queries and keys, no attention between tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(16)
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(16, 16) for _ in range(3))
        self.q_norm, self.k_norm = nn.RMSNorm(4), nn.RMSNorm(4)
        self.o_proj = nn.Linear(16, 16, bias=False)
        self.gate_proj, self.up_proj = nn.Linear(16, 32, bias=False), nn.Linear(16, 32, bias=False)
        self.down_proj = nn.Linear(32, 16, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        normed = self.input_layernorm(x)
        heads = (*normed.shape[:-1], -1, 4)
        query, key = self.q_norm(self.q_proj(normed).view(heads)), self.k_norm(self.k_proj(normed).view(heads))
        x = x + self.o_proj(((query * key).flatten(2)) * self.v_proj(normed))
        return x + self.down_proj(torch.relu(self.gate_proj(x)) * self.up_proj(x))


class Model(nn.Module):
    def __init__(self, own_plan: bool) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(24, 16)
        self.layers = nn.ModuleList(Layer() for _ in range(2))
        self.lm_head = nn.Linear(16, 24, bias=False)
        if own_plan:
            inside = {f"layers.*.{name}_proj": "colwise" for name in ("q", "k", "v", "gate", "up")}
            norms = {f"layers.*.{name}_norm": "replicated_with_grad_allreduce" for name in ("q", "k")}
            rows = {"layers.*.o_proj": "rowwise", "layers.*.down_proj": "rowwise"}
            ends = {"embed_tokens": "embedding_rowwise", "lm_head": "colwise_gather_output"}
            self.tp_plan = {**inside, **norms, **rows, **ends}

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(x)


def gradients(own_plan: bool, split: bool) -> dict[str, list[float]]:
    torch.manual_seed(0)
    model = Model(own_plan).double()
    if split:
        split_huggingface(model, init_device_mesh("cpu", (2,), mesh_dim_names=("tensor",)))
    model(torch.arange(24).view(2, 12)).square().mean().backward()
    settle_gradients(model.parameters())
    found = {name: parameter.grad for name, parameter in model.named_parameters()}
    return {
        name: (value.full_tensor() if isinstance(value, DTensor) else value).flatten().tolist()
        for name, value in found.items()
        if value is not None
    }


@pytest.mark.parametrize("own_plan", [True, False], ids=["its own plan", "by names"])
def test_gradients_equal_those_of_one_process(own_plan: bool):
    (alone,) = on_ranks(1, lambda: gradients(own_plan, split=False))
    first, second = on_ranks(2, lambda: gradients(own_plan, split=True))
    assert first.keys() == alone.keys()
    for name, value in alone.items():
        assert first[name] == pytest.approx(value, rel=1e-10, abs=1e-14), name
        assert second[name] == first[name], name


def test_models_without_a_plan_are_refused_with_the_reason():
    fused = nn.Sequential()
    fused.add_module("c_attn", nn.Linear(4, 12))
    with pytest.raises(UserError, match="c_attn holds several projections in one matrix"):
        huggingface_plan(fused)
    with pytest.raises(UserError, match="no names that are known"):
        huggingface_plan(nn.Sequential(nn.Linear(2, 2)))
    odd = Model(own_plan=True)
    odd.tp_plan["lm_head"] = "packed_rowwise"
    with pytest.raises(UserError, match="'packed_rowwise', which vivace does not know"):
        huggingface_plan(odd)
