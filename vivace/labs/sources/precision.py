# /// lab
# day = 1
# order = 3
# title = "mixed precision"
# goal = "See what 16 bits lose: small updates, long sums, small gradients. And what autocast and loss scaling do about each."
# predict = """
# A weight of 1.0 gets a thousand updates of 0.001. What is it afterwards in fp32, fp16 and bf16? Up to which number can each format count
# by ones? Which share of a network's gradients becomes zero in fp16 if the loss is small?"""
# compare = "The three tables: how far each format counts, what is left of the updates, and the share of gradients that is lost at each loss scale."
# see = """
# bf16 has the range of fp32 and 8 bits of digits: a step of 0.001 on 1.0 is rounded away, every time. fp16 has 11 bits and little range: gradients below 2^-24
# become zero, and multiplying the loss brings them back until the large ones overflow. So weights and sums stay in fp32, products run
# in 16 bits, and fp16 needs a loss scale while bf16 does not."""
# hardware = """
# The numbers are the same everywhere. The gain is not: tensor cores run products in 16 bits 8 to 16 times as fast as in fp32 (the catalogue's peaks: `vivace hardware --gpu H100`);
# a CPU without bf16 units may be slower."""
# about_s = 3
# commands = [
#   "vivace measure --histograms -- python train.py",
#   "vivace tune -- python train.py",
# ]
# ///

# %%
import torch
from torch import nn

from vivace.labs import Table, is_small

FORMATS = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}

digits = Table("format", "counts_to", "smallest", "largest", "after_1000_updates", name="formats")
for name, dtype in FORMATS.items():
    power = next(p for p in range(40) if torch.tensor(2.0**p, dtype=dtype) + 1 == torch.tensor(2.0**p, dtype=dtype))
    weight = torch.ones((), dtype=dtype)
    for _ in range(1000):
        weight += 0.001
    smallest = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
    digits.add(name, 2**power, smallest, torch.finfo(dtype).max, weight.item())
digits.show()

# %% [markdown]
# What autocast does with each operator: products in 16 bits, what sums up in fp32. Parameters and their gradients stay in fp32.

# %%
torch.manual_seed(0)
hidden = 64 if is_small() else 1024
model = nn.Sequential(nn.Linear(hidden, hidden), nn.GELU(), nn.LayerNorm(hidden), nn.Linear(hidden, 10))
x, labels = torch.randn(64, hidden), torch.randint(0, 10, (64,))
kinds = Table("value", "dtype", name="autocast")
with torch.autocast("cpu", torch.bfloat16):
    linear = model[0](x)
    loss = nn.functional.cross_entropy(model(x), labels)
loss.backward()
weight = model[0].weight
seen = {"the input": x, "a linear layer": linear, "the loss": loss, "a weight": weight, "its gradient": weight.grad}
for name, value in seen.items():
    kinds.add(name, str(value.dtype).removeprefix("torch."))
kinds.show()

# %% [markdown]
# A loss that is small, as of a detector with few positive boxes, has small gradients. What fp16 makes of them, at each loss scale:

# %%
model.zero_grad()
(nn.functional.cross_entropy(model(x), labels) * 1e-5).backward()
gradients = torch.cat([p.grad.flatten() for p in model.parameters()])
gradients = gradients[gradients != 0]
scales = Table("scale_log2", "lost", "overflow", name="table")
for power in range(0, 40, 4):
    halves = (gradients.double() * 2.0**power).half()
    scales.add(power, (halves == 0).double().mean().item(), halves.isinf().double().mean().item())
scales.show()
scales.picture(x="scale_log2", y=["lost", "overflow"], title="share of the gradients, in fp16")
