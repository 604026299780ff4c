# /// lab
# day = 4
# order = 3
# title = "data parallelism under the hood"
# goal = """
# Average gradients over ranks while the backward pass still runs, and get the weights of one process to the last
# digits."""
# predict = """
# A model has six parameters (13,856 bytes). How many messages does a step need on four ranks with one bucket per
# parameter, and with one bucket for all? Which one sends more bytes?"""
# compare = "Messages for each bucket size, and whether the bytes differ."
# see = """
# Buckets save messages, not bytes: 2 (N − 1)/N of the gradients in every row. One bucket for all sends the fewest
# messages, but it can leave only when the last gradient is there: nothing overlaps. Torch's 25 MiB is the
# compromise."""
# hardware = """
# With several GPUs the exchange hides behind the backward pass until the network is too slow: `vivace measure
# --ranks` shows the exposed part."""
# about_s = 6
# course = ["DDP", "archives: tp_pi"]
# commands = [
#     "vivace measure --ranks 2 -- python train.py",
# ]
# ///

# %% [markdown]
# On the command line: `python -m vivace.parallel.underhood data-parallel --ranks 4`. In Python:

# %%
from vivace.labs import Table
from vivace.parallel.underhood.demonstrations import DEMONSTRATIONS
from vivace.parallel.underhood.ranks import on_ranks

shown = on_ranks(DEMONSTRATIONS["data-parallel"].run, 4)[0]  # the figures of rank 0
table = Table("bucket_bytes", "buckets", "messages", "sent_bytes", "gradient_bytes")
for row in shown.rows:
    table.add(*row)
table.show()
print(f"largest relative difference to one process: {shown.difference:.0e}")
table.picture(x="bucket_bytes", y=["messages"], bars=True, title="messages a step by bucket size")

# %% [markdown]
# | bucket size | buckets | messages a step | bytes a step |
# |---|---|---|---|
# | 1 byte: one per parameter | 6 | 36 | 20,784 |
# | 10,000 bytes | 2 | 12 | 20,784 |
# | 25 MiB, torch's default | 1 | 6 | 20,784 |
#
# ([table](../../benchmarks/results/underhood.csv); the weights after three steps differ from those of one process by 2e-16)
#
# **Why it is right.** Each rank averages over its samples. The mean of these means is the mean over the batch if all ranks have equally many samples. Three things must hold:
#
# 1. All ranks begin with the same weights: rank 0's are sent round.
# 2. All ranks send their buckets in the same order. A bucket waits for those before it.
# 3. A parameter that a rank did not use sends zeros. Otherwise the others wait for it forever: DDP's `find_unused_parameters` ([DDP lab](ddp.md)).
#
# While you accumulate, nothing needs to be sent: `no_sync()`.

# %% [markdown]
# **By hand, in ten lines.** Without buckets and overlap, data parallelism is: every rank computes the gradients of its own samples, and an all-reduce takes their mean. Change the number of ranks, or give the ranks
# unequal shares: when does the last line fail?

# %%
import torch

from vivace.parallel.underhood.collectives import all_reduce


def own_share(wire):
    torch.manual_seed(0)  # the same first weights and samples on all ranks
    layer = torch.nn.Linear(16, 4).double()
    inputs, targets = torch.randn(32, 16).double(), torch.randn(32, 4).double()
    mine = inputs.chunk(wire.size)[wire.rank], targets.chunk(wire.size)[wire.rank]
    torch.nn.functional.mse_loss(layer(mine[0]), mine[1]).backward()
    mean = all_reduce(wire, layer.weight.grad.clone()) / wire.size
    layer.zero_grad()
    torch.nn.functional.mse_loss(layer(inputs), targets).backward()  # the whole batch, for comparison
    return float((mean - layer.weight.grad).abs().max()), wire.sent.messages


difference, messages = on_ranks(own_share, 4)[0]
print(f"difference to the whole batch {difference:.0e}, {messages} messages")
assert difference < 1e-12
assert messages == 2 * (4 - 1)

# %% [markdown]
# **Read** [`data_parallel.py`](../../vivace/parallel/underhood/data_parallel.py): 120 lines. The test compares it with `DistributedDataParallel`, with accumulation and an unused layer.
