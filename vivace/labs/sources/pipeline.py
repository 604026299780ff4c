# /// lab
# day = 4
# order = 5
# title = "pipeline parallelism under the hood"
# goal = """
# Put layers on different ranks, and see where the waiting comes from and what micro-batches do about it."""
# predict = """
# Four ranks, eight micro-batches. Which share of the time does a rank wait, if a backward pass takes twice as
# long as a forward pass? Does it matter how long it takes?"""
# compare = """
# The share of waiting for eight micro-batches, and whether the length of the backward pass matters."""
# see = """
# The bubble is (p − 1)/(m + p − 1) for p ranks and m micro-batches, 3/11 here, for GPipe and for 1F1B, however
# long a backward pass takes. More micro-batches make it smaller. GPipe then needs memory for all of them. 1F1B
# keeps at most p − r on rank r: that is its whole point."""
# hardware = """
# The bubble is the same; what is added is the time of the messages and stages that are not equally long."""
# about_s = 6
# course = ["archives: gros modèles"]
# commands = [
#     "vivace plan llama-8b --cluster jean-zay-h100 --gpus 64",
# ]
# ///

# %% [markdown]
# On the command line: `python -m vivace.parallel.underhood pipeline --ranks 4`. In Python:

# %%
from vivace.labs import Table
from vivace.parallel.underhood.demonstrations import DEMONSTRATIONS
from vivace.parallel.underhood.ranks import on_ranks

shown = on_ranks(DEMONSTRATIONS["pipeline"].run, 4)[0]  # the figures of rank 0
table = Table("schedule", "micro_batches", "waiting_share", "kept_on_rank_0", "messages")
for row in shown.rows:
    table.add(*row)
table.show()
print(f"largest relative difference to one process: {shown.difference:.0e}")

# %% [markdown]
# | schedule | waiting (bubble) | micro-batches kept on rank 0 |
# |---|---|---|
# | naive: one micro-batch after the other | 75 % | 1 |
# | GPipe: all forward, then all backward | 27 % | 8 |
# | 1F1B: backward as soon as possible | 27 % | 4 |
#
# ([table](../../benchmarks/results/underhood.csv); gradients differ from those of one process by 8e-16)
#
#     1F1B, four micro-batches (a number is a forward pass, a number in brackets a backward pass)
#     rank 0   0  1  2  3  .  .  .  .  .  . [ 0  ] . [ 1  ] . [ 2  ] . [ 3  ]
#     rank 1   .  0  1  2  .  .  .  . [ 0  ] 3 [ 1  ] . [ 2  ] . [ 3  ] .  .
#     rank 2   .  .  0  1  .  . [ 0  ] 2 [ 1  ] 3 [ 2  ] . [ 3  ] .  .  .  .
#     rank 3   .  .  .  0 [ 0  ] 1 [ 1  ] 2 [ 2  ] 3 [ 3  ] .  .  .  .  .  .
#
# Messages between ranks are small (activations of one micro-batch), so a pipeline may span nodes where tensor parallelism may not. In 1F1B two neighbours send to each other at the same time:
# with blocking messages this hangs ([messages](messages.md)).

# %% [markdown]
# **Your own schedule.** A schedule is a list of passes for each rank, so you can draw and check any. The bubble does not depend on the time of a backward pass:

# %%
from vivace.parallel.underhood.pipeline import bubble, draw, gpipe, one_f_one_b

print(draw(one_f_one_b, 4, 4))
waiting = Table("micro_batches", "waiting_share", name="waiting")
for micro_batches in (4, 8, 16, 32):
    shares = [bubble(schedule, 4, micro_batches, backward=b) for schedule in (gpipe, one_f_one_b) for b in (1, 2, 3)]
    waiting.add(micro_batches, shares[0])
    assert all(abs(share - 3 / (micro_batches + 3)) < 1e-9 for share in shares)
waiting.show()
waiting.picture(x="micro_batches", y=["waiting_share"], log_x=True, title="waiting on four ranks")

# %% [markdown]
# **Read** [`pipeline.py`](../../vivace/parallel/underhood/pipeline.py).
