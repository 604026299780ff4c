"""Each optimizer against its paper's formula written out tensor by tensor, and against torch where torch has it."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from vivace.methods.optim import Lamb, Lars, Lion, Muon, ScheduleFreeAdamW, Shampoo

STEPS = 7
Tensors = list[torch.Tensor]


def net(dtype: torch.dtype = torch.float64) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(2, 3, 3), nn.Flatten(), nn.LayerNorm(12), nn.Linear(12, 5)).to(dtype)


def gradients(model: nn.Module, step: int) -> Tensors:
    torch.manual_seed(step)
    inputs = torch.randn(6, 2, 4, 4, dtype=next(model.parameters()).dtype)
    model.zero_grad()
    model(inputs).square().mean().backward()
    return [parameter.grad for parameter in model.parameters()]


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range = range(STEPS)) -> Tensors:
    for step in steps:
        gradients(model, step)
        optimizer.step()
    return [parameter.detach() for parameter in model.parameters()]


def by_formula(rule: Callable[[torch.Tensor, torch.Tensor, dict[str, Any], int], torch.Tensor]) -> Tensors:
    """``rule(weight, gradient, memory, step from 1)`` is the new weight."""
    model = net()
    memories: list[dict[str, Any]] = [{} for _ in model.parameters()]
    for step in range(STEPS):
        found = gradients(model, step)
        with torch.no_grad():
            for parameter, gradient, memory in zip(model.parameters(), found, memories, strict=True):
                parameter.copy_(rule(parameter.clone(), gradient.clone(), memory, step + 1))
    return [parameter.detach() for parameter in model.parameters()]


def assert_equal(mine: Tensors, reference: Tensors, to: float = 1e-10) -> None:
    for one, other in zip(mine, reference, strict=True):
        assert torch.allclose(one, other, rtol=to, atol=to), float((one - other).abs().max())


def adam(gradient: torch.Tensor, memory: dict[str, Any], step: int, betas: tuple[float, float], eps: float) -> Any:
    first, second = betas
    memory["m"] = first * memory.get("m", 0) + (1 - first) * gradient
    memory["v"] = second * memory.get("v", 0) + (1 - second) * gradient**2
    return (memory["m"] / (1 - first**step)) / ((memory["v"] / (1 - second**step)).sqrt() + eps)


def test_lamb() -> None:
    def rule(weight: torch.Tensor, gradient: torch.Tensor, memory: dict[str, Any], step: int) -> torch.Tensor:
        update = adam(gradient, memory, step, (0.9, 0.999), 1e-6) + 0.1 * weight
        ratio = weight.norm() / update.norm() if weight.dim() > 1 else 1.0
        return weight - 0.02 * ratio * update

    model = net()
    assert_equal(train(model, Lamb(model.parameters(), lr=0.02, weight_decay=0.1)), by_formula(rule))


@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("nesterov", [False, True])
def test_lars_and_larc(clip: bool, nesterov: bool) -> None:
    rate, decay, momentum = 0.5, 0.01, 0.9

    def rule(weight: torch.Tensor, gradient: torch.Tensor, memory: dict[str, Any], step: int) -> torch.Tensor:
        update = gradient
        if weight.dim() > 1:
            local = 0.02 * weight.norm() / (gradient.norm() + decay * weight.norm())
            local = min(float(local) / rate, 1.0) if clip else local
            update = local * (gradient + decay * weight)
        memory["buffer"] = momentum * memory.get("buffer", 0) + update
        return weight - rate * (update + momentum * memory["buffer"] if nesterov else memory["buffer"])

    model = net()
    optimizer = Lars(
        model.parameters(), rate, momentum=momentum, weight_decay=decay, trust=0.02, clip=clip, nesterov=nesterov
    )
    assert_equal(train(model, optimizer), by_formula(rule))


def test_lion() -> None:
    def rule(weight: torch.Tensor, gradient: torch.Tensor, memory: dict[str, Any], step: int) -> torch.Tensor:
        before = memory.get("m", torch.zeros_like(weight))
        memory["m"] = 0.99 * before + 0.01 * gradient
        return weight - 0.01 * ((0.9 * before + 0.1 * gradient).sign() + 0.3 * weight)

    model = net()
    assert_equal(train(model, Lion(model.parameters(), lr=0.01, weight_decay=0.3)), by_formula(rule))


def test_muon_is_adamw_for_vectors_and_for_groups_without_matrices() -> None:
    model, reference = net(), net()
    mine = Muon(model.parameters(), lr=0.01, weight_decay=0.1, betas=(0.9, 0.95), matrices=False)
    theirs = torch.optim.AdamW(reference.parameters(), lr=0.01, weight_decay=0.1, betas=(0.9, 0.95))
    assert_equal(train(model, mine), train(reference, theirs))


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this torch has no Muon")
def test_muon_is_torch_s_for_matrices() -> None:
    def linears() -> nn.Sequential:
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(32, 8, bias=False), nn.Linear(8, 20, bias=False))

    model, reference = linears(), linears()
    mine = Muon(model.parameters(), lr=0.01, weight_decay=0.1)
    options: Any = {"adjust_lr_fn": "match_rms_adamw"}
    theirs = torch.optim.Muon(reference.parameters(), lr=0.01, weight_decay=0.1, **options)
    assert_equal(train(model, mine), train(reference, theirs), to=1e-6)


def test_schedule_free_weights_are_the_average_of_the_plain_iterates() -> None:
    rate, betas, decay, warmup = 0.05, (0.9, 0.99), 0.01, 3
    model = net()
    optimizer = ScheduleFreeAdamW(model.parameters(), rate, betas, weight_decay=decay, warmup_steps=warmup)
    other = net()
    z = [parameter.detach().clone() for parameter in other.parameters()]
    x = copy.deepcopy(z)
    squares = [torch.zeros_like(each) for each in z]
    weights = 0.0
    for step in range(1, STEPS + 1):
        gradients(model, step)
        optimizer.step()
        with torch.no_grad():
            y = [betas[0] * xi + (1 - betas[0]) * zi for xi, zi in zip(x, z, strict=True)]
            for parameter, value in zip(other.parameters(), y, strict=True):
                parameter.copy_(value)
        found = gradients(other, step)
        now = rate * min(1.0, step / warmup)
        weights += now**2
        for i, gradient in enumerate(found):
            squares[i] = betas[1] * squares[i] + (1 - betas[1]) * gradient**2
            update = gradient / ((squares[i] / (1 - betas[1] ** step)).sqrt() + 1e-8) + decay * y[i]
            z[i] = z[i] - now * update
            x[i] = x[i] + now**2 / weights * (z[i] - x[i])
    optimizer.eval()
    assert_equal([parameter.detach() for parameter in model.parameters()], x)
    with pytest.raises(RuntimeError, match=r"optimizer\.train\(\)"):
        optimizer.step()
    optimizer.train()
    optimizer.train()  # twice is once
    between = [betas[0] * xi + (1 - betas[0]) * zi for xi, zi in zip(x, z, strict=True)]
    assert_equal([parameter.detach() for parameter in model.parameters()], between)


def root(matrix: torch.Tensor, power: float) -> torch.Tensor:
    """By another way than the code: singular values."""
    u, values, _ = torch.linalg.svd(matrix)
    return u @ torch.diag((values + 1e-6 * values.max()) ** power) @ u.T


def test_shampoo() -> None:
    def rule(weight: torch.Tensor, gradient: torch.Tensor, memory: dict[str, Any], step: int) -> torch.Tensor:
        plain = adam(gradient, memory, step, (0.9, 0.999), 1e-8)
        update = plain
        if weight.dim() > 1:
            update = memory["m"] / (1 - 0.9**step)
            sides = weight.dim()
            for side in range(sides):
                rows = gradient.movedim(side, 0).reshape(weight.shape[side], -1)
                memory[side] = 0.999 * memory.get(side, 0) + 0.001 * rows @ rows.T
                if step == 1 or step % 3 == 0:
                    memory[f"root {side}"] = root(memory[side] / (1 - 0.999**step), -1 / (2 * sides))
                update = torch.tensordot(memory[f"root {side}"], update, dims=([1], [side])).movedim(0, side)
            update = update * plain.norm() / update.norm()
        return weight * (1 - 0.01 * 0.1) - 0.01 * update

    model = net()
    optimizer = Shampoo(model.parameters(), lr=0.01, weight_decay=0.1, every=3)
    assert_equal(train(model, optimizer), by_formula(rule), to=1e-6)


MAKERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "lamb": lambda groups: Lamb(groups, lr=0.02, weight_decay=0.1),
    "lars": lambda groups: Lars(groups, lr=0.5, weight_decay=0.01, trust=0.02),
    "lion": lambda groups: Lion(groups, lr=0.001, weight_decay=0.3),
    "muon": lambda groups: Muon(groups, lr=0.01),
    "schedule-free": lambda groups: ScheduleFreeAdamW(groups, lr=0.01),
    "shampoo": lambda groups: Shampoo(groups, lr=0.01, every=3),
}


@pytest.mark.parametrize("name", MAKERS)
def test_a_saved_state_goes_on_as_if_nothing_had_happened(name: str) -> None:
    model = net()
    whole = train(model, MAKERS[name](model.parameters()))
    first = net()
    optimizer = MAKERS[name](first.parameters())
    train(first, optimizer, range(3))
    second = net()
    second.load_state_dict(first.state_dict())
    resumed = MAKERS[name](second.parameters())
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert_equal(train(second, resumed, range(3, STEPS)), whole, to=0.0)


@pytest.mark.parametrize("name", MAKERS)
def test_groups_schedules_closures_and_missing_gradients(name: str) -> None:
    model = net()
    frozen, free = list(model[0].parameters()), list(model[2:].parameters())
    before = [parameter.detach().clone() for parameter in frozen]
    optimizer = MAKERS[name]([{"params": frozen, "lr": 0.0, "weight_decay": 0.0}, {"params": free}])
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    for parameter in model[3].parameters():
        parameter.requires_grad_(False)  # gets no gradient
    last = [parameter.detach().clone() for parameter in model[3].parameters()]

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(torch.ones(2, 2, 4, 4, dtype=torch.float64)).square().mean()
        loss.backward()
        return loss

    assert torch.is_tensor(optimizer.step(closure))
    schedule.step()
    optimizer.step(closure)
    assert_equal([parameter.detach() for parameter in frozen], before, to=0.0)
    assert_equal([parameter.detach() for parameter in model[3].parameters()], last, to=0.0)
    assert math.isclose(optimizer.param_groups[1]["lr"], optimizer.defaults["lr"] / 2)


@pytest.mark.parametrize("name", MAKERS)
def test_sparse_gradients_are_refused(name: str) -> None:
    words = nn.Embedding(5, 3, sparse=True)
    words(torch.tensor([1, 2])).sum().backward()
    with pytest.raises(RuntimeError, match="sparse"):
        MAKERS[name](words.parameters()).step()


@pytest.mark.parametrize("kind", [Lamb, Lars, Lion, Muon, ScheduleFreeAdamW, Shampoo])
def test_an_impossible_rate_is_refused_with_its_value(kind: Any) -> None:
    with pytest.raises(ValueError, match="lr=-1"):
        kind(net().parameters(), lr=-1)
