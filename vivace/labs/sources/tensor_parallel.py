# /// lab
# day = 4
# order = 6
# title = "tensor parallelism under the hood"
# goal = """
# Cut one transformer layer over ranks, in the course's eleven steps, and count its communications."""
# predict = """
# An MLP is two products, an attention is four. How many all-reduces does a transformer layer need for a forward
# and a backward pass?"""
# compare = "The all-reduces of one transformer layer, forward and backward."
# see = """
# Four, whatever the size: a column-parallel product hands its columns to a row-parallel product without a word,
# and only the row-parallel one adds up. In the backward pass it is the other way round. Each all-reduce moves the
# activations of the batch and the layer waits for it, so tensor parallelism belongs inside a node."""
# hardware = """
# The counts are the same. What changes is how long a layer waits: try `vivace plan` with 8 and with 16 GPUs of 8
# per node."""
# about_s = 6
# course = ["archives: tensor parallel"]
# commands = [
#     "vivace plan llama-8b --cluster jean-zay-h100 --gpus 16",
# ]
# ///

# %% [markdown]
# On the command line: `python -m vivace.parallel.underhood tensor --ranks 4`. In Python:

# %%
from vivace.labs import Table
from vivace.parallel.underhood.demonstrations import DEMONSTRATIONS
from vivace.parallel.underhood.ranks import on_ranks

shown = on_ranks(DEMONSTRATIONS["tensor"].run, 4)[0]  # the figures of rank 0
table = Table("part", "all_reduces_forward", "all_reduces_backward", "sent_bytes")
for row in shown.rows:
    table.add(*row)
table.show()
print(f"largest relative difference to one process: {shown.difference:.0e}")
table.picture(
    x="part", y=["all_reduces_forward", "all_reduces_backward"], bars=True, title="communications on four ranks"
)

# %% [markdown]
# | part | all-reduces forward | all-reduces backward |
# |---|---|---|
# | embedding | 1 | 0 |
# | transformer layer | 2 | 2 |
#
# ([table](../../benchmarks/results/underhood.csv); outputs and gradients differ from torch's own layer by 5e-16)
#
# | step of the course | here |
# |---|---|
# | 1 duplication and all-reduce as autograd functions | `to_all` (f), `from_all` (g) |
# | 2 column-wise linear | `ColumnLinear` |
# | 3 embedding | `VocabularyEmbedding` |
# | 4 attention | `Attention`: whole heads on a rank, scores divided by the square root of the head's size |
# | 5 feed-forward | `MLP` |
# | 6 a column-row pair | `ColumnLinear` → `RowLinear` |
# | 7 use it | `Block` |
# | 8 a group for the ranks of one model | `grid()`, first answer |
# | 9 communication within that group | every layer takes its `wire` |
# | 10 a group across the models | `grid()`, second answer |
# | 11 data parallelism over that group | `DataParallel(block, data)` |

# %% [markdown]
# **By hand.** A column-parallel product hands its columns to a row-parallel one without a word. Count the messages, then swap the two layers: what goes wrong?

# %%
import torch

from vivace.parallel.underhood.tensor import ColumnLinear, RowLinear


def pair(wire):
    torch.manual_seed(0)
    first, second = torch.nn.Linear(8, 32).double(), torch.nn.Linear(32, 8).double()
    inputs = torch.randn(4, 8, dtype=torch.float64)
    reference = second(torch.nn.functional.gelu(first(inputs)))
    mine = RowLinear(second, wire)(torch.nn.functional.gelu(ColumnLinear(first, wire)(inputs)))
    return (mine - reference).abs().max().item(), wire.sent.messages


difference, messages = on_ranks(pair, 4)[0]
print(f"difference to torch {difference:.0e}, {messages} messages: one all-reduce")
assert difference < 1e-12
assert messages == 2 * (4 - 1)

# %% [markdown]
# **Read** [`tensor.py`](../../vivace/parallel/underhood/tensor.py). [The test](../../tests/parallel/underhood/test_underhood.py) checks each step on four ranks.
