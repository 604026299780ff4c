# /// lab
# day = 3
# order = 5
# title = "the same small model in JAX"
# goal = "Write one small network in torch and in JAX: gradient, Hessian, jit. See where they agree, what is compiled when, and what compiling costs."
# predict = """
# The same weights, data and formulas in float32. How far apart are the gradients of the two? How often does `jax.jit` read
# the Python function if it is called with batches of 64, 64, 64, 32 and 32?"""
# compare = "The differences in the first table, and the column `traces` of the second."
# see = """
# Both compute the same gradients and Hessians, up to rounding. In JAX they are functions of functions (`grad(loss)`,
# `hessian(loss)`), and `torch.func` has the same ones. The difference lies in what is fixed: torch runs each operator at once
# and lets Python change its mind; `jit` reads the function once per shape and compiles all of it, so an `if` on a value
# is refused, not broken around. The first call pays for that: it is told apart here, and belongs in no comparison of speed."""
# hardware = """
# Counts and differences stay (on GPUs and TPUs matrix products of float32 are rounded more by default). The times do not: this is a
# network of 40 weights on a CPU, where the cost of a call decides. It says nothing about a large model."""
# about_s = 8
# course = ["JIT"]
# needs = ["torch", "jax"]
# commands = ["pip install 'vivace[jax]'      # the CPU build of JAX"]
# ///

# %% [markdown]
# One network, twice. `pip install 'vivace[jax]'` brings the CPU build of JAX.

# %%
import time

import jax
import jax.numpy as jnp
import numpy as np
import torch

from vivace.labs import Table, is_small

draw = np.random.default_rng(0)
weights = {
    "first": draw.normal(0, 0.5, (4, 8)).astype("float32"),
    "second": draw.normal(0, 0.5, (8, 1)).astype("float32"),
}
inputs = draw.normal(size=(64, 4)).astype("float32")
targets = np.sin(inputs.sum(1, keepdims=True))


def torch_loss(weights, inputs, targets):
    return ((torch.tanh(inputs @ weights["first"]) @ weights["second"] - targets) ** 2).mean()


def jax_loss(weights, inputs, targets):
    return ((jnp.tanh(inputs @ weights["first"]) @ weights["second"] - targets) ** 2).mean()


in_torch = {name: torch.tensor(value) for name, value in weights.items()}, torch.tensor(inputs), torch.tensor(targets)
in_jax = {name: jnp.array(value) for name, value in weights.items()}, jnp.array(inputs), jnp.array(targets)

# %% [markdown]
# torch's own way is the tape: operators write down what they did, `backward()` walks back. JAX turns a function into the
# function of its gradient, which can be turned again. `torch.func` does the same in torch.

# %%


def flat(tree):
    return np.concatenate([np.asarray(leaf).ravel() for leaf in jax.tree.leaves(tree)])


def on_the_tape(weights, inputs, targets):
    leaves = {name: value.clone().requires_grad_() for name, value in weights.items()}
    torch_loss(leaves, inputs, targets).backward()
    return {name: leaf.grad for name, leaf in leaves.items()}


agreement = Table("what", "numbers", "largest_difference", "of_largest", name="agreement")
for what, ours, theirs in (
    ("loss", torch_loss(*in_torch), jax_loss(*in_jax)),
    ("gradient, torch's tape", on_the_tape(*in_torch), jax.grad(jax_loss)(*in_jax)),
    ("gradient, torch.func", torch.func.grad(torch_loss)(*in_torch), jax.grad(jax_loss)(*in_jax)),
    ("Hessian, torch.func", torch.func.hessian(torch_loss)(*in_torch), jax.hessian(jax_loss)(*in_jax)),
):
    ours, theirs = flat(ours), flat(theirs)
    difference = float(np.abs(ours - theirs).max())
    agreement.add(what, len(ours), difference, difference / float(np.abs(ours).max()))
agreement.show()

# %% [markdown]
# `jit` runs the Python function only to read it, once per shape: a `print` or a counter in it is not in the compiled code.

# %%
read = []


def counted(weights, inputs, targets):
    read.append(inputs.shape)
    return jax_loss(weights, inputs, targets)


compiled = jax.jit(counted)
traces = Table("call", "batch", "traces", name="traces")
for call, batch in enumerate((64, 64, 64, 32, 32), 1):
    compiled(in_jax[0], in_jax[1][:batch], in_jax[2][:batch])
    traces.add(call, batch, len(read))
traces.show()


def double_or_less(x):
    if x.sum() > 0:
        return x * 2
    return x - 1


try:
    jax.jit(double_or_less)(jnp.ones(3))
except jax.errors.TracerBoolConversionError as error:
    print(f"an if on a value is refused: {str(error).splitlines()[0]}")
mended = jax.jit(lambda x: jax.lax.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, x))
print(f"with jax.lax.cond: {mended(jnp.full(3, 5.0))[0]} and {mended(jnp.full(3, -5.0))[0]}")

# %% [markdown]
# Now the times of a gradient step, compile time apart. JAX comes back before it has computed (as CUDA does), so the clock
# needs `block_until_ready`. At full size torch.compile takes part too, which needs a C++ compiler on a CPU.

# %%


def step_in_torch(weights, inputs, targets):
    gradients = torch.func.grad(torch_loss)(weights, inputs, targets)
    return {name: weight - 0.1 * gradients[name] for name, weight in weights.items()}


def step_in_jax(weights, inputs, targets):
    gradients = jax.grad(jax_loss)(weights, inputs, targets)
    return {name: weight - 0.1 * gradients[name] for name, weight in weights.items()}


def microseconds(step, given):
    began = time.perf_counter()
    jax.block_until_ready(step(*given))
    return 1e6 * (time.perf_counter() - began)


ways = {"torch": (step_in_torch, in_torch), "jax": (step_in_jax, in_jax), "jax.jit": (jax.jit(step_in_jax), in_jax)}
if not is_small():
    ways["torch.compile"] = (torch.compile(step_in_torch), in_torch)
table = Table("step", "first_call_ms", "median_us")
for name, (step, given) in ways.items():
    first = microseconds(step, given)
    table.add(name, first / 1e3, sorted(microseconds(step, given) for _ in range(101))[50])
table.show()
table.picture(x="step", y=["median_us"], bars=True, log_y=True, title="one gradient step, after the first call")
