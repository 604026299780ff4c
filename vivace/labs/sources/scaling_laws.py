# /// lab
# day = 4
# order = 9
# title = "scaling laws"
# goal = "Fit L(N, D) on runs of small models, see what one run that went wrong does to the fit, and split a budget of compute between parameters and tokens."
# predict = """
# You have losses of models up to 400M parameters. How well do they tell the loss of one with 100 times the compute? If the budget grows 100 times, how
# many times larger should the model be, and how many times the data?"""
# compare = "The predicted losses in the second table, and how parameters and tokens grow with compute in the third."
# see = """
# Without noise the fit finds the law that the runs were drawn from, and predicts far beyond them. With noise of half a percent the exponents
# move, and the range of the fits without one run each tells how much that matters. One run that is 20 % off moves them less than that
# noise does: the Huber loss keeps it from deciding, but the range becomes wide. Parameters and tokens grow
# together, as β/(α+β) and α/(α+β) of the compute's exponent: neither alone."""
# hardware = "Nothing changes: the law knows parameters and tokens, no machine. `vivace plan` turns the compute into days on GPUs."
# about_s = 3
# commands = [
#   "vivace plan scaling-law runs.csv --params 1B --tokens 20B",
#   "vivace plan scaling-law runs.csv --flops 1e21",
# ]
# ///

# %% [markdown]
# No network is trained here. The runs are drawn from a law that is known, that of
# [Hoffmann et al., 2022](https://arxiv.org/abs/2203.15556) (approach 3), so that the fit can be checked against the truth. For runs of your
# own, write a CSV with the columns params, tokens and loss, and give it to the command at the end.

# %%
import numpy as np

from vivace.labs import Table, is_small
from vivace.plan.laws.loss_law import LossLaw, TrainedRun, fit_with_ranges

truth = LossLaw(e=1.69, a=406.4, alpha=0.34, b=410.7, beta=0.28)
grid = [(params, tokens) for params in (25e6, 100e6, 400e6) for tokens in (1e9, 4e9, 16e9)]


def drawn(noise):
    draw = np.random.default_rng(0)
    return [TrainedRun(n, d, truth.loss(n, d) * float(np.exp(noise * draw.standard_normal()))) for n, d in grid]


fits = {
    f"noise {noise:.1%}": fit_with_ranges(drawn(noise))
    for noise in ((0.0, 0.005) if is_small() else (0.0, 0.002, 0.005, 0.02))
}
wrong = drawn(0.0)
wrong[4] = wrong[4]._replace(loss=wrong[4].loss * 1.2)  # a rate too high, say: 20 % above its law
fits["one run wrong"] = fit_with_ranges(wrong)
table = Table("runs", "E", "alpha", "beta", "left_out_error")
table.add("the truth", truth.e, truth.alpha, truth.beta, None)
for name, fitted in fits.items():
    table.add(name, fitted.law.e, fitted.law.alpha, fitted.law.beta, fitted.left_out_error)
table.show()

# %% [markdown]
# What each fit says about a model of 4B parameters on 160B tokens, 100 times the compute of the largest run.

# %%
large = 4e9, 160e9
predictions = Table("runs", "times_largest_run", "predicted", "low", "high", "true_loss", name="predictions")
for name, fitted in fits.items():
    predictions.add(name, fitted.reach(*large), fitted.law.loss(*large), *fitted.range_of(*large), truth.loss(*large))
predictions.show()

# %%
split = Table("log10_flops", "params", "tokens", "tokens_per_param", "loss", name="split")
for power in (19, 21, 23):
    params, tokens = truth.best_split(10.0**power)
    split.add(power, params, tokens, tokens / params, truth.loss(params, tokens))
split.show()
split.picture(x="log10_flops", y=["params", "tokens"], log_y=True, title="the best split of a budget")
