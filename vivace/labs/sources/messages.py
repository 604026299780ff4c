# /// lab
# day = 4
# order = 2
# title = "messages, a ring, and π"
# goal = "See what two processes need to talk to each other, and what it costs to add up a tensor over N of them."
# predict = """
# Four ranks each have 96,000 bytes. How many bytes must one rank send until all of them have the sum? And with
# eight ranks?"""
# compare = "The bytes of an all-reduce on two and on four ranks (and on eight at full size)."
# see = """
# The bytes hardly grow with the number of ranks; they stay below twice the tensor. The number of messages grows with
# N, and every message has to wait for the one before. So large tensors do well on a ring, and many small ones do not:
# [buckets](data_parallel.md) come next."""
# hardware = """
# The counts are the same. NCCL uses the same ring (and trees for small messages); what changes is the time per
# message and per byte, which `vivace plan` takes from measured tables."""
# about_s = 6
# course = ["archives: tp_pi"]
# ///

# %% [markdown]
# Four collective operations, made of messages. On the command line: `python -m vivace.parallel.underhood ring --ranks 4`.

# %%
from vivace.labs import Table, is_small
from vivace.parallel.underhood.demonstrations import DEMONSTRATIONS
from vivace.parallel.underhood.ranks import on_ranks

table = Table("ranks", "operation", "messages", "sent_bytes", "share_of_tensor")
for ranks in (2, 4) if is_small() else (2, 4, 8):
    for operation, messages, sent, share in on_ranks(DEMONSTRATIONS["ring"].run, ranks)[0].rows:
        table.add(ranks, operation, messages, sent, float(share))
table.show()

# %%
all_reduces = Table("ranks", "sent_bytes", "theory_bytes", name="all_reduce")
for ranks, operation, _, sent, _ in table.rows:
    if operation == "all-reduce":
        all_reduces.add(ranks, sent, 2 * (ranks - 1) * 96_000 // ranks)
all_reduces.show()
all_reduces.picture(x="ranks", y=["sent_bytes", "theory_bytes"], bars=True, title="bytes that rank 0 sends")

# %% [markdown]
# - `send` comes back when the other side has received. If both ranks send first, both wait forever. In
#   `python -m vivace.parallel.underhood messages --ranks 4` even ranks send first; `exchange` starts both directions and waits for both.
# - A broadcast is a tree: 1, 2, 4, 8 ranks know. Rank 0 sends log₂ N times, the last ranks not at all.
# - π needs one all-reduce of a single number for a million terms. Training is not like that: every step adds up all gradients.

# %%
pi = Table("blocks", "pi", "error", name="pi")
for blocks, value, error in on_ranks(DEMONSTRATIONS["pi"].run, 2)[0].rows:
    pi.add(blocks, value, float(error))
pi.show()

# %% [markdown]
# Measured once on two, four and eight ranks ([table](../../benchmarks/results/underhood.csv)):
#
# | ranks | messages of an all-reduce | bytes sent by a rank, of 96,000 | 2 (N − 1)/N |
# |---|---|---|---|
# | 2 | 2 | 96,000 | 1.00 |
# | 4 | 6 | 144,000 | 1.50 |
# | 8 | 14 | 168,000 | 1.75 |
#
# **Read** [`wire.py`](../../vivace/parallel/underhood/wire.py), [`collectives.py`](../../vivace/parallel/underhood/collectives.py) and [`pi.py`](../../vivace/parallel/underhood/pi.py): 150 lines.
