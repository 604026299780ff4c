# /// lab
# day = 3
# order = 4
# title = "compilation, old and new"
# goal = "See what a compiler does with a Python `if`: TorchScript's trace and script, and torch.compile. Count graphs, graph breaks and compilations, and mend what breaks."
# predict = """
# A function doubles a tensor if its sum is positive, else it subtracts 1. It is traced with a positive tensor. What does
# the traced function return for a negative one? And how often does torch.compile compile a function that is called with
# twelve batch sizes?"""
# compare = "The results of the trace, and the column `compilations` of the second table."
# see = """
# A trace records the operations that ran once: the `if` is gone, and the result is wrong without an error, only a
# warning. `script` reads the source and keeps both branches. torch.compile does neither: where it cannot follow Python it
# breaks the graph, lets Python decide, and goes on behind it. The result is always right; what is lost is speed. So count:
# one graph and one compilation is what you want. A second batch size is compiled again, with the size as a variable,
# and then no size is new. A number of a module that changes in each call is guarded by value and compiled anew each time,
# until torch.compile gives up after eight. Such a number belongs in a tensor."""
# hardware = """
# The counts are the same on a GPU. The gain is not: there a small operator costs its launch, so fusing pays more, and
# `mode="reduce-overhead"` (CUDA graphs) removes the launches themselves. `vivace tune` tries the modes on your script and keeps what pays."""
# about_s = 8
# course = ["JIT"]
# commands = [
#   "vivace practices compile",
#   "vivace run --with compile -- python train.py",
#   "vivace run --with compile=reduce-overhead -- python train.py",
# ]
# ///

# %% [markdown]
# ## TorchScript: trace and script
#
# TorchScript is the old way: `torch.jit`. In torch 2.13 it still runs, and says `DeprecationWarning: torch.jit.trace is
# deprecated. Please switch to torch.compile or torch.export`. New code should not use it; old code has it in many places.

# %%
import warnings

import torch

from vivace.labs import Table, is_small


def double_or_less(x):
    if x.sum() > 0:
        return x * 2
    return x - 1


positive, negative = torch.full((3,), 5.0), torch.full((3,), -5.0)
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    traced = torch.jit.trace(double_or_less, positive)
    scripted = torch.jit.script(double_or_less)
print(*sorted({f"{one.category.__name__}: {str(one.message).partition('. ')[0]}" for one in said}), sep="\n")

old = Table("function", "of_5", "of_minus_5", "right", "keeps_the_if", name="torchscript")
for name, function in {"python": double_or_less, "trace": traced, "script": scripted}.items():
    right = torch.equal(function(negative), double_or_less(negative))
    keeps = "prim::If" in str(function.graph) if hasattr(function, "graph") else True
    old.add(name, function(positive)[0].item(), function(negative)[0].item(), right, keeps)
old.show()

# %% [markdown]
# The course's `fused_gelu` was scripted to make one kernel of five operations. On a GPU TorchScript's fuser does that; on a
# CPU it is off by default, and the graph keeps all five. torch.compile fuses on both.

# %%


def gelu(x):
    return x * 0.5 * (1.0 + torch.erf(x / 1.41421))


with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    fused_gelu = torch.jit.script(gelu)
x = torch.linspace(-3, 3, 1001)
for _ in range(3):  # it optimizes in the third call
    fused_gelu(x)
operations = [
    node.kind() for node in torch.jit.last_executed_optimized_graph().nodes() if node.kind().startswith("aten::")
]
print(f"operations left after fusing here: {len(operations)}: {', '.join(operations)}")
print(f"largest difference to torch's gelu: {(fused_gelu(x) - torch.nn.functional.gelu(x)).abs().max():.1e}")

# %% [markdown]
# ## torch.compile: three regimes
#
# The course knows three: it just works; it works with a little work; it is a slog. The backend below only counts the graphs
# that it gets, so nothing is compiled to machine code and the counts take no time. `torch._dynamo.explain` counts breaks.

# %%
import logging

import torch._dynamo

logging.getLogger("torch._dynamo").setLevel(logging.ERROR)  # its warnings are long, and the table says the same


def item_in_the_middle(x):
    scale = x.abs().max().item()
    return (x / scale).relu()


def tensor_in_the_middle(x):
    return (x / x.abs().max()).relu()


def print_in_the_middle(x):
    y = x * 2
    print("", end="")
    return y.relu()


def where(x):
    return torch.where(x.sum() > 0, x * 2, x - 1)


def count(make, calls):
    """Graphs and breaks of the first call; graphs compiled in all calls; whether all results are those of Python."""
    compiled = []

    def backend(graph, inputs):
        compiled.append(graph)
        return graph.forward

    torch._dynamo.reset()
    first = torch._dynamo.explain(make())(*calls[0])
    torch._dynamo.reset()
    fast, plain = torch.compile(make(), backend=backend), make()
    right = all(torch.equal(fast(*call), plain(*call)) for call in calls)
    return first.graph_count, first.graph_break_count, len(compiled), right


numbers = torch.Generator().manual_seed(0)
same = [(torch.rand(8, generator=numbers),) for _ in range(12)]
sizes = [(torch.rand(size, generator=numbers),) for size in range(2, 14)]
signs = [(torch.full((8,), 1.0 if call % 2 == 0 else -1.0),) for call in range(12)]

table = Table("regime", "function", "calls", "graphs", "breaks", "compilations", "right")
for regime, name, function, calls in (
    ("just works", "gelu, one size", gelu, same),
    ("just works", "gelu, 12 sizes", gelu, sizes),
    ("a little work", "if on a tensor", double_or_less, signs),
    ("mended", "torch.where", where, signs),
    ("a little work", ".item() in the middle", item_in_the_middle, same),
    ("mended", "a tensor instead", tensor_in_the_middle, same),
    ("a little work", "print in the middle", print_in_the_middle, same),
):
    table.add(regime, name, len(calls), *count(lambda function=function: function, calls))


# %% [markdown]
# The slog is a model whose Python state changes from call to call. Here a layer counts its calls, as home-made schedules and
# warm-ups do. Numbers of a module are guarded by value: each is compiled anew, up to
# `torch._dynamo.config.recompile_limit`. From then on the layer runs as plain Python, and only a line in the log says so. A
# buffer mends it: its value is data, not a guard.

# %%


class CountsInPython(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.call = 0

    def forward(self, x):
        self.call += 1
        return x * 0.5**self.call


class CountsInABuffer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("call", torch.zeros(()))

    def forward(self, x):
        self.call += 1
        return x * 0.5**self.call


table.add("a slog", "counts calls in Python", len(same), *count(CountsInPython, same))
table.add("mended", "counts calls in a buffer", len(same), *count(CountsInABuffer, same))
table.show()
print(f"compilations before torch.compile gives up: {torch._dynamo.config.recompile_limit}")
table.picture(x="function", y=["breaks", "compilations"], bars=True, title="what torch.compile counts in 12 calls")

# %% [markdown]
# ## k-means in numpy
#
# torch.compile reads numpy too, and gives numpy arrays back. The function below makes a table of all distances, points × means × 2
# numbers, and throws it away; fused code never writes it. At full size the lab compiles it to C++ (this needs a C++ compiler) and times both;
# the small form counts the graphs only.

# %%
import numpy as np


def nearest(points, means):
    return np.argmin(((points[:, None] - means[None]) ** 2).sum(-1), axis=1)


def move(points, means):
    """The loop over means has a size that depends on data: numpy's mask breaks the graph."""
    groups = nearest(points, means)
    return np.stack([points[groups == k].mean(axis=0) for k in range(len(means))])


points = np.random.default_rng(0).standard_normal((2_000 if is_small() else 200_000, 2)).astype("float32")
k_means = Table("function", "graphs", "breaks", name="k_means")
for function in (nearest, move):
    torch._dynamo.reset()
    first = torch._dynamo.explain(function)(points, points[:20])
    k_means.add(function.__name__, first.graph_count, first.graph_break_count)
k_means.show()

# %%
if not is_small():
    import time

    def seconds(function):
        began = time.perf_counter()
        function(points, points[:20])
        return time.perf_counter() - began

    torch._dynamo.reset()
    fast = torch.compile(nearest, fullgraph=True)
    times = Table("nearest", "first_call_s", "median_ms", name="k_means_times")
    for name, function in {"numpy": nearest, "compiled": fast}.items():
        times.add(name, seconds(function), 1e3 * sorted(seconds(function) for _ in range(9))[4])
    times.show()
    print(f"points with the same answer: {np.mean(fast(points, points[:20]) == nearest(points, points[:20])):.2%}")
    print(f"calls until the compilation is paid: {times.rows[1][1] * 1e3 / (times.rows[0][2] - times.rows[1][2]):,.0f}")

# %% [markdown]
# **Try it.** In your own training, `TORCH_LOGS=graph_breaks,recompiles python train.py` names each line that breaks and each guard that
# failed. `vivace tune` measures with and without, in fresh processes, and tells compile time apart.
