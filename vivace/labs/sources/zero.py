# /// lab
# day = 4
# order = 4
# title = "ZeRO under the hood"
# goal = """
# N copies of a model waste memory. Cut the optimizer's states, then the gradients, then the parameters over the
# ranks, and count what each stage keeps and sends."""
# predict = """
# Adam keeps two numbers per parameter. Parameters take 13,856 bytes. What does a rank keep between two steps on
# four ranks, in stages 1, 2 and 3? Which stage sends more than data parallelism?"""
# compare = """
# The bytes that each stage keeps between steps, and which stage sends more than 20,784 bytes."""
# see = """
# Stages 1 and 2 send no more than data parallelism: an all-reduce is a reduce-scatter and an all-gather, and the
# step fits between the two. Stage 3 gathers the parameters of a layer twice, before its forward and before its
# backward pass: half as much again."""
# hardware = """
# The counts are the same; what changes is the time of the messages. `vivace plan MODEL --gpus N` compares the
# stages by memory and time; `vivace run --ranks N --with zero1` does stage 1 on your own script."""
# about_s = 8
# course = ["archives: gros modèles"]
# commands = [
#     "vivace run --ranks 4 --with zero1 -- python train.py",
# ]
# ///

# %% [markdown]
# On the command line: `python -m vivace.parallel.underhood zero --ranks 4`. In Python:

# %%
from vivace.labs import Table
from vivace.parallel.underhood.demonstrations import DEMONSTRATIONS
from vivace.parallel.underhood.ranks import on_ranks

shown = on_ranks(DEMONSTRATIONS["zero"].run, 4)[0]  # the figures of rank 0
table = Table("stage", "kept_bytes", "peak_bytes", "sent_bytes")
for row in shown.rows:
    table.add(*row)
table.show()
print(f"largest relative difference to one process: {shown.difference:.0e}")
table.picture(x="stage", y=["kept_bytes", "peak_bytes", "sent_bytes"], bars=True, title="ZeRO on four ranks")

# %% [markdown]
# | stage | kept between steps | most parameters and gradients at once | bytes sent a step |
# |---|---|---|---|
# | none (data parallelism) | 41,568 | 27,712 | 20,784 |
# | 1: optimizer states cut | 20,784 | 27,712 | 20,784 |
# | 2: and gradients | 20,784 | 22,568 | 20,784 |
# | 3: and parameters | 10,392 | 17,160 | 31,176 |
#
# ([table](../../benchmarks/results/underhood.csv); the first row is arithmetic: three times the parameters, and an all-reduce. The weights after three steps differ from those of one process by 8e-16)
#
# Stages 1 and 2 keep the same between steps, because gradients are gone by then. The difference is in the pass: with stage 2 a layer's gradients leave as soon as they are there. Stage 3 needs
# one whole layer at a time; the largest layer sets the peak (here the middle one has 61 % of all parameters).

# %% [markdown]
# **The arithmetic.** With P bytes of parameters, Adam's two states and N ranks a rank keeps 3 P without ZeRO. Stages 1 and 2 keep the parameters and a share of the states, stage 3 a share of all. Try other numbers of ranks: which
# stage gains most?

# %%
parameters = 13_856
for ranks in (2, 4):
    kept = {row[0]: row[1] for row in on_ranks(DEMONSTRATIONS["zero"].run, ranks)[0].rows}
    print(ranks, "ranks:", kept, "bytes between steps")
    assert kept[1] == kept[2] == parameters + 2 * parameters // ranks
    assert kept[3] == 3 * parameters // ranks

# %% [markdown]
# **Read** [`zero.py`](../../vivace/parallel/underhood/zero.py): 160 lines. The trick of stage 3 is in `Unit`: the layer's parameters are views of one piece of memory, which is given back
# and taken again under them. FSDP does the same.
