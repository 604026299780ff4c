"""Run as several ranks with fsdp: what torch's functions do with sharded parameters is what they do with plain ones.

Random shapes (fewer rows than ranks, too) and dtypes. Then the memory of a step with AdamW, and dropped models.
"""

import copy
import gc
import io
import os
import random

import torch
import torch.nn as nn

random.seed(0)
torch.manual_seed(0)


class Holder(nn.Module):
    def __init__(self, shape, dtype):
        super().__init__()
        self.p = nn.Parameter(torch.randn(shape).to(dtype))

    def forward(self, x):
        return x * self.p.double().sum()


def whole(value):
    return torch.tensor(value.tolist(), dtype=torch.float64)


CHANGES = [
    lambda p, o, s: p.mul_(1.5), lambda p, o, s: p.add_(o, alpha=0.5), lambda p, o, s: p.copy_(o),
    lambda p, o, s: p.zero_(), lambda p, o, s: p.clamp_(-0.5, 0.5), lambda p, o, s: p.lerp_(o, 0.25),
    lambda p, o, s: p.addcmul_(o, o, value=0.1), lambda p, o, s: p.sub_(s), lambda p, o, s: p.div_(s + 3),
    lambda p, o, s: p.add_(o[:1]), lambda p, o, s: p.normal_(), lambda p, o, s: p[0].fill_(2.0),
    lambda p, o, s: p.view(-1)[:1].mul_(3.0), lambda p, o, s: p.__setitem__(-1, 0.5),
    lambda p, o, s: torch._foreach_mul_([p, p], 0.5), lambda p, o, s: torch._foreach_add_([p], [o], alpha=2.0),
    lambda p, o, s: p.masked_fill_(o > 0, 1.0), lambda p, o, s: p.uniform_(-1, 1), lambda p, o, s: p.data.add_(1.0),
    lambda p, o, s: p.sort(0, descending=True),
    lambda p, o, s: p.t_() if p.dim() == 2 and p.size(0) == p.size(1) else p,
]  # fmt: skip
READS = [
    lambda p, o: p.norm(), lambda p, o: p.norm(1), lambda p, o: p.norm(float("inf")), lambda p, o: p.sum(),
    lambda p, o: p * 2 + o, lambda p, o: p.clone(), lambda p, o: torch.where(p > 0, p, o), lambda p, o: p.max(),
    lambda p, o: p.flatten()[-1], lambda p, o: torch.cat([p, o]), lambda p, o: p.std() if p.numel() > 1 else p.sum(),
    lambda p, o: torch.linalg.vector_norm(p, 2), lambda p, o: p.abs().sqrt(), lambda p, o: torch.zeros_like(p),
    lambda p, o: p.to(torch.float64), lambda p, o: p.unsqueeze(0),
    lambda p, o: torch.stack(torch._foreach_norm([p, p])), lambda p, o: p.isfinite(), lambda p, o: p.transpose(0, -1),
    lambda p, o: p.reshape(-1).cumsum(0), lambda p, o: p.argmax(), lambda p, o: p.pow(2).mean(), lambda p, o: 1 - p,
    lambda p, o: -p,
]  # fmt: skip

cases = 0
for _ in range(12):
    shape = [random.randint(1, 7) for _ in range(random.randint(1, 3))]
    dtype = random.choice([torch.float64, torch.float32, torch.bfloat16])
    holder = Holder(shape, dtype)
    plain = copy.deepcopy(holder.p).detach()
    holder(torch.ones(6))
    assert type(holder.p).__name__ == "Sharded", type(holder.p)
    for change in random.sample(CHANGES, 8):
        other, scalar = torch.randn(shape).to(dtype), torch.rand(()).to(dtype)
        chance = torch.get_rng_state()
        with torch.no_grad():
            change(plain, other, scalar)
            after = torch.get_rng_state()
            torch.set_rng_state(chance)
            change(holder.p, other, scalar)
        assert torch.equal(after, torch.get_rng_state())
        for read in random.sample(READS, 6):
            with torch.no_grad():
                expected, found = read(plain, other), read(holder.p, other)
            assert expected.shape == found.shape
            assert expected.dtype == found.dtype
            close = {torch.bfloat16: 2e-2, torch.float32: 1e-5}.get(expected.dtype, 1e-12)
            torch.testing.assert_close(whole(found), whole(expected), rtol=close, atol=close, check_dtype=False)
            cases += 1
    file = io.BytesIO()
    torch.save(holder.state_dict(), file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)["p"]
    assert type(loaded) is torch.Tensor
    assert torch.equal(loaded, plain)
print("cases", cases)

model = nn.Sequential(*(nn.Sequential(nn.Linear(256, 256), nn.ReLU()) for _ in range(8)))
optimizer = torch.optim.AdamW(model.parameters())
expected = 4 * sum(p.numel() * p.element_size() for p in model.parameters())  # values, gradients, two averages
for _ in range(2):
    optimizer.zero_grad()
    model(torch.randn(6, 256)).pow(2).mean().backward()
    optimizer.step()
gc.collect()
storages = {}
for value in gc.get_objects():
    if type(value) in (torch.Tensor, nn.Parameter) and not value.is_sparse:
        storage = value.untyped_storage()
        storages[storage._cdata] = storage.nbytes()
print("share", sum(storages.values()) / expected)


def train(width, second_derivatives):
    model = nn.Sequential(nn.Linear(3, width), nn.Tanh(), nn.Linear(width, 1))
    model.circle = [model]  # only the garbage collector frees it
    x = torch.randn(8, 3, requires_grad=True)
    loss = model(x).square().mean()
    if second_derivatives:
        loss = loss + torch.autograd.grad(loss, x, create_graph=True)[0].square().sum()
    loss.backward()


# A model that was dropped is gone on one rank alone: the others do not wait for it when all gather their models again.
gc.disable()
for width in (5, 6):
    train(width, second_derivatives=False)
if os.environ["VIVACE_RANK"] == "1":
    gc.collect()
train(7, second_derivatives=True)
