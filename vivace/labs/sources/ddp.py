# /// lab
# day = 2
# order = 3
# title = "from one GPU to several with DDP"
# goal = "Train on two processes what one process trains, and see what breaks it: local batch norm, parameters without a gradient, an exchange too many."
# predict = """
# Two processes train with half of each batch. In which of these is the gradient that of one process: without batch norm, with
# batch norm, with batch norm over all processes? And which of these fail: three heads of which a step uses one, blocks skipped by
# a Python `if`, blocks switched off by a factor 0?"""
# compare = "The column `difference` of the first table, and `ended` of the second."
# see = """
# DDP averages gradients, nothing else. Batch norm sees the share of one process, so its gradients are others, until the
# statistics are exchanged too. DDP waits for a gradient of every parameter: a head or a block that a step does not use has none, and the next step
# fails, unless `find_unused_parameters` looks for them. A block that is multiplied by 0 has a gradient of zeros, so stochastic depth with masks needs no
# option. With accumulation `no_sync` leaves one exchange per update; without it there is one per batch, for the same gradient."""
# hardware = """
# The same on GPUs with NCCL, where `nn.SyncBatchNorm` replaces the few lines of plain torch used here, and each exchange costs
# network time: `vivace check` finds options that are on for nothing (`ddp_options`) and exchanges too many (`ddp_no_sync`)."""
# about_s = 8
# course = ["2_2", "2_3"]
# full_needs = ["gpus"]
# without = "Without several GPUs all counts and gradients are shown on processes of this CPU; what the exchanges cost in time is not."
# commands = [
#   "vivace run --ranks 2 --with ddp -- python train.py",
#   "vivace submit --cluster jean-zay-h100 --gpus 8 --account xyz --with ddp -- python train.py",
# ]
# ///

# %% [markdown]
# Each case runs in processes of its own. A hook of DDP counts the buckets that are exchanged. The gradient of two processes with
# eight images each is compared with that of one process with all sixteen.

# %%
import contextlib

import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from vivace.labs import Table
from vivace.parallel.underhood.ranks import on_ranks
from vivace.train.models.sync_batch_norm import synchronised

IMAGES = 16


class Net(nn.Module):
    """A small network: with several heads a step uses one; the block in the middle may be skipped."""

    def __init__(self, norm, heads=1, skip="never"):
        super().__init__()
        self.first = nn.Sequential(
            nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8) if norm else nn.Identity(), nn.ReLU()
        )
        self.block = nn.Conv2d(8, 8, 1)
        self.heads = nn.ModuleList(nn.Linear(8, 4) for _ in range(heads))
        self.skip, self.step = skip, 0

    def forward(self, images):
        self.step += 1
        x = self.first(images)
        if self.skip == "mask":
            x = x + self.block(x) * (self.step % 2)
        elif self.skip == "never" or self.step % 2 == 0:
            x = x + self.block(x)
        return self.heads[self.step % len(self.heads)](x.mean((2, 3)))


def train(wire, net, sync=False, find_unused=False, steps=1, accumulate=1, hold_back=True):
    """The last gradient, buckets exchanged, and how it ended."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Net(**net)
    if sync:
        model = synchronised(model, torch.device("cpu"))
    model = DistributedDataParallel(model, find_unused_parameters=find_unused)
    exchanged = []

    def count(state, bucket):
        exchanged.append(bucket.buffer().numel())
        return allreduce_hook(None, bucket)

    model.register_comm_hook(None, count)
    draws = torch.Generator().manual_seed(1)
    images = torch.randn(IMAGES, 3, 8, 8, generator=draws) * torch.linspace(0.5, 2, IMAGES).view(-1, 1, 1, 1)
    labels = torch.randint(4, (IMAGES,), generator=draws)
    share = IMAGES // wire.size
    images, labels = (values[wire.rank * share : (wire.rank + 1) * share] for values in (images, labels))
    try:
        for _ in range(steps):
            model.zero_grad()
            parts = list(zip(images.chunk(accumulate), labels.chunk(accumulate), strict=True))
            for place, (some, these) in enumerate(parts):
                held_back = hold_back and place < len(parts) - 1
                with model.no_sync() if held_back else contextlib.nullcontext():
                    loss = nn.functional.cross_entropy(model(some), these) / accumulate
                    loss.backward()
    except RuntimeError as error:
        return None, len(exchanged), str(error).partition(". ")[0]
    gradients = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
    return torch.cat(gradients).tolist(), len(exchanged), "well"


def difference(case, **options):
    one, two = (on_ranks(lambda wire: train(wire, case, **options), ranks)[0][0] for ranks in (1, 2))
    return (torch.tensor(one) - torch.tensor(two)).abs().max().item() / torch.tensor(one).abs().max().item()


table = Table("network", "difference", "same_gradient")
for name, norm, sync in (
    ("no batch norm", False, False),
    ("batch norm", True, False),
    ("batch norm over all processes", True, True),
):
    apart = difference({"norm": norm}, sync=sync)
    table.add(name, apart, apart < 1e-5)
table.show()
table.picture(x="network", y=["difference"], bars=True, log_y=True, title="gradient of two processes against one")

# %%
cases = Table("network", "find_unused_parameters", "ended", name="unused")
for name, net in (
    ("one of three heads a step", {"norm": False, "heads": 3}),
    ("a block skipped by if", {"norm": False, "skip": "if"}),
    ("a block times 0", {"norm": False, "skip": "mask"}),
):
    for find_unused in (False, True):
        ended = on_ranks(lambda wire, net=net, find=find_unused: train(wire, net, find_unused=find, steps=3), 2)[0][2]
        cases.add(name, find_unused, ended)
cases.show()

# %%
exchanges = Table("batches_per_update", "no_sync", "exchanges", "difference", name="accumulation")
whole = torch.tensor(on_ranks(lambda wire: train(wire, {"norm": False}), 2)[0][0])
for accumulate in (1, 2, 4):
    for hold_back in (False, True):
        found, count, _ = on_ranks(
            lambda wire, n=accumulate, hold=hold_back: train(wire, {"norm": False}, accumulate=n, hold_back=hold), 2
        )[0]
        exchanges.add(accumulate, hold_back, count, (torch.tensor(found) - whole).abs().max().item())
exchanges.show()

# %% [markdown]
# The course's trainer on several processes: first by hand ([`examples/dlojz_ddp.py`](../../examples/dlojz_ddp.py)), then without an edit. Everything below runs on a
# CPU in a few minutes, in the repository (`pip install -e '.[dev]'`); on GPUs add `--device cuda` and take a larger model and batch. `diff examples/dlojz.py examples/dlojz_ddp.py`
# shows what changes by hand; the lines are marked with DDP.
#
# ## 1. The same training with two processes
#
#     python examples/dlojz_ddp.py --model resnet18 --image-size 32 --num-workers 0 --dataset-size 64 --lr 0.001 -b 16
#     torchrun --standalone --nproc-per-node 2 examples/dlojz_ddp.py --model resnet18 --image-size 32 --num-workers 0 --dataset-size 64 --lr 0.001 -b 8
#
# `-b` is the batch per process, so both have the global batch 16, and print the same losses. For this, all of the following must be right:
#
# | line | without it |
# |---|---|
# | `DistributedSampler`, a batch of 8 per process | every process trains on the same images: N times the work, and the batch of one |
# | `sampler.set_epoch(epoch)` | the same order of images in every epoch |
# | `DistributedDataParallel(model)` | N models that drift apart: gradients are averaged inside `backward()` |
# | `SyncBatchNorm` | section 2 |
# | metrics reduced over the processes (torchmetrics does it in `compute()`) | the loss of one share is printed, as if it were that of all |
# | `compute()` on all processes, outside of `if rank == 0` | the others wait for a process that never comes: a hang |
# | `if idr_torch.rank == 0` around `print` and `torch.save` | every line N times, and N processes that write one file |
# | validation in shares without repeated images | `DistributedSampler` repeats images to make shares equal, and counts them twice |
#
# The learning rate belongs to the *global* batch. If you keep `-b 16` per process instead, the batch doubles: one step sees twice the images, an
# epoch has half the steps, and the learning rate must be chosen again (often: in proportion, with a warm-up).
#
# ## 2. SyncBatchNorm
#
#     torchrun --standalone --nproc-per-node 2 examples/dlojz_ddp.py --model resnet18 --image-size 32 --num-workers 0 --dataset-size 64 --lr 0.001 -b 8 --no-sync-bn
#
# Batch norm divides by the statistics of the batch that it sees. Without SyncBatchNorm that is the share of one process: other losses from the first step on,
# and another model. With 32 or more images per process it hardly matters; with a few per GPU (segmentation, 3-D images, large pictures) it does. It costs an exchange per
# layer and direction. `nn.SyncBatchNorm` takes GPU tensors only; on a CPU the example uses [a few lines of plain torch](../../vivace/train/models/sync_batch_norm.py).
#
# ## 3. find_unused_parameters
#
#     torchrun --standalone --nproc-per-node 2 examples/dlojz_ddp.py --model resnet18 --image-size 32 --num-workers 0 --dataset-size 64 --lr 0.001 -b 8 --heads 3
#     torchrun --standalone --nproc-per-node 2 examples/dlojz_ddp.py --model resnet18 --image-size 32 --num-workers 0 --dataset-size 64 --lr 0.001 -b 8 --heads 3 --find-unused-parameters
#
# `--heads 3` draws one of three classifiers at each step; the other two get no gradient. DDP waits for a gradient of *every* parameter before it finishes
# a bucket. The first command ends with `RuntimeError: Expected to have finished reduction in the prior iteration`. With the option DDP walks through the graph
# after each forward pass and marks what will have no gradient. The walk costs time, so leave it off where all parameters are used: `vivace check` finds a script
# that has it on for nothing (`ddp_options`).
#
# ## 4. Accumulation
#
#     torchrun --standalone --nproc-per-node 2 examples/dlojz_ddp.py --model resnet18 --image-size 32 --num-workers 0 --dataset-size 64 --lr 0.001 -b 4 --accumulate 2
#
# Two batches of 4 per process make one update with the gradient of 16 images. Only the last needs the exchange: `model.no_sync()` holds it back for the others. It must
# hold the forward pass too, and the loss is divided by the number of batches. The losses are not those of section 1: batch norm sees 8 images at a time, not 16.
# `vivace check` finds an accumulation that exchanges every time (`ddp_no_sync`).
#
# ## 5. Without an edit
#
#     vivace run --ranks 2 --with ddp -- python examples/dlojz.py --model resnet18 --image-size 32 --num-workers 0 --dataset-size 64 --lr 0.001 -b 16
#
# `examples/dlojz.py` knows one process. vivace starts it twice and splits each batch ([how](../scale.md)): `-b 16` stays the global batch, batch norm sees all of it, each line is printed once,
# one checkpoint is written, and the losses are those of
#
#     python examples/dlojz.py --model resnet18 --image-size 32 --num-workers 0 --dataset-size 64 --lr 0.001 -b 16
#
# (Not those of section 1: the twin draws its order of images in another way.) Heads without a gradient and accumulation need no option.
#
# ## 6. On the cluster
#
#     vivace submit --cluster jean-zay-h100 --gpus 8 --account xyz -- python examples/dlojz_ddp.py --device cuda -b 128 --test
#     vivace submit --cluster jean-zay-h100 --gpus 8 --account xyz --with ddp -- python examples/dlojz.py --device cuda -b 1024 --test
