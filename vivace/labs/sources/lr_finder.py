# /// lab
# day = 3
# order = 2
# title = "finding a learning rate"
# goal = "Find a learning rate in one short run, and learn what such a run cannot know."
# predict = """
# A range test raises the rate after every step and looks at the loss right after it. The loss is a parabola with curvature 100, and plain
# gradient descent diverges above a rate of 0.02. At which rate is the loss of the range test lowest, and at which is it back where it
# began? A character GPT has AdamW at 5e-5 in its script. Will the suggestion be lower or higher? Does training at the suggestion
# always beat a tenth of it, and ten times it?"""
# compare = "The columns `lowest_at` and `back_at_start` with `limit`, and the losses at three rates."
# see = """
# On a parabola each step is a factor of 1 − rate × curvature. The loss falls as long as that is between −1 and 1, so it is lowest at the limit
# itself. It is back at its start only far above the limit: the steps before came close to the minimum, and it takes a while to
# leave again. So "the rate at which it diverges" is no measure, and the suggestion stays below the lowest point. A finder with a mistake still draws a curve and still names a rate; only the counts show what it
# did. One range test of some seconds does not decide a training; three seeds of three rates (or a [race](../race.md)) do."""
# hardware = """
# The same everywhere: the test counts steps, not seconds. With several ranks all of them try the same rates and leave together."""
# about_s = 5
# course = ["opti"]
# commands = [
#   "vivace find lr -- python benchmarks/lr_jobs/gpt.py",
#   "python benchmarks/find_lr.py                           # three scripts, three rates, three seeds",
# ]
# ///

# %% [markdown]
# A range test is a few lines: another rate before each step, and the loss after it. The rates and the suggestion are those of `vivace find lr`.
# First a parabola, where the right answer is known: plain gradient descent diverges above 2 / curvature.

# %%
import copy
import statistics

import torch
from torch import nn

from vivace.labs import Table, is_small
from vivace.protocol.rates import RateTest
from vivace.tune.finders.rate_curve import smoothed, suggest


def range_test(loss_of, optimizer, test):
    """The rates, the loss after a step with each, and the loss before all of them."""
    rates, losses = [], []
    for number in range(test.steps):
        optimizer.zero_grad()
        loss = loss_of()
        losses.append(loss.item())
        loss.backward()
        rates.append(test.rate(number))
        for group in optimizer.param_groups:
            group["lr"] = rates[-1]
        optimizer.step()
    losses.append(loss_of().item())
    return rates, losses[1:], losses[0]


test = RateTest(1e-5, 100.0, 141)  # 20 rates per decade
parabola = Table("curvature", "limit", "lowest_at", "back_at_start", "suggested", name="parabola")
for curvature in (1.0, 10.0, 100.0):
    weight = nn.Parameter(torch.ones((), dtype=torch.float64))
    rates, losses, first = range_test(lambda: curvature / 2 * weight**2, torch.optim.SGD([weight], 0.0), test)  # noqa: B023
    lowest = losses.index(min(losses))
    back = next(rate for rate, loss in zip(rates[lowest:], losses[lowest:], strict=True) if loss > first)
    parabola.add(curvature, 2 / curvature, rates[lowest], back, suggest(rates, losses, first).suggested)
parabola.show()

# %% [markdown]
# Now a small network on made-up data, with SGD, momentum and AdamW.

# %%
torch.set_num_threads(1)
CLASSES, WIDTH, BATCH = 10, 32, 32
draws = torch.Generator().manual_seed(0)
centres = torch.randn(CLASSES, WIDTH, generator=draws)
labels = torch.randint(CLASSES, (4096,), generator=draws)
points = centres[labels] + 1.2 * torch.randn(4096, WIDTH, generator=draws)


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(WIDTH, 64), nn.ReLU(), nn.Linear(64, CLASSES))


def loss_on(model, number):
    """The loss on batch ``number``; after the last batch the first one comes again."""
    at = BATCH * number % len(points)
    return nn.functional.cross_entropy(model(points[at : at + BATCH]), labels[at : at + BATCH])


def batches(model):
    numbers = iter(range(10_000))
    return lambda: loss_on(model, next(numbers))


OPTIMIZERS = {
    "sgd": lambda parameters, lr: torch.optim.SGD(parameters, lr),
    "sgd, momentum 0.9": lambda parameters, lr: torch.optim.SGD(parameters, lr, momentum=0.9),
    "adamw": lambda parameters, lr: torch.optim.AdamW(parameters, lr),
}
test = RateTest(1e-6, 100.0, 161 if is_small() else 401)
curve = Table("rate", "loss", "smoothed", name="curve")
found = {}
for name, make in OPTIMIZERS.items():
    model = network()
    rates, losses, first = range_test(batches(model), make(model.parameters(), 0.0), test)
    found[name] = suggest(rates, losses, first)
    if name == "adamw":
        for row in zip(rates, losses, smoothed(losses, first), strict=True):
            curve.add(*row)
suggestions = Table("optimizer", "steepest", "a_tenth_of_lowest", "suggested", name="suggestions")
for name, one in found.items():
    suggestions.add(name, one.steepest, one.tenth_of_best, one.suggested)
suggestions.show()
figure = curve.picture(
    x="rate", y=["smoothed"], log_x=True, title="range test with AdamW: loss after a step at each rate"
)
figure

# %% [markdown]
# Is the suggestion good? Train at a tenth of it, at it, and at ten times it: the loss over all data at the end, the median of three seeds.

# %%


def trained(make, rate, seed, steps):
    model = network(seed)
    optimizer, loss_of = make(model.parameters(), rate), batches(model)
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of().backward()
        optimizer.step()
    with torch.no_grad():
        return nn.functional.cross_entropy(model(points), labels).item()


steps = 128 if is_small() else 1024
table = Table("optimizer", "suggested", "a_tenth", "the_suggestion", "ten_times")
for name, make in OPTIMIZERS.items():
    rate = found[name].suggested
    ends = [[trained(make, times * rate, seed, steps) for seed in range(3)] for times in (0.1, 1, 10)]
    table.add(name, rate, *(statistics.median(losses) for losses in ends))
table.show()

# %% [markdown]
# Three mistakes are easy to make when this is written by hand, and the course's notebook has them. That finder trains some steps at each of ten
# rates, each time from the same weights. Below each mistake is made alone, and counted.

# %%


def decorrelated(mistake, rates=10, steps=8):
    """Rates that began with the first weights, rates that began with old momentum, and batches seen."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.0, momentum=0.9)
    start = model.state_dict() if mistake == "the live weights are kept" else copy.deepcopy(model.state_dict())
    begun = copy.deepcopy(model.state_dict())
    numbers, seen, fresh, pushed = iter(range(10_000)), set(), 0, 0
    for place in range(rates):
        model.load_state_dict(start)
        if mistake != "the optimizer is kept":
            optimizer = torch.optim.SGD(model.parameters(), 0.0, momentum=0.9)
        fresh += all(torch.equal(begun[key], value) for key, value in model.state_dict().items())
        pushed += bool(optimizer.state)
        optimizer.param_groups[0]["lr"] = 10 ** (-4 + 5 * place / (rates - 1))
        for _ in range(steps):
            number = 0 if mistake == "a new iterator at each step" else next(numbers)
            seen.add(number)
            optimizer.zero_grad()
            loss_on(model, number).backward()
            optimizer.step()
    return rates, fresh, pushed, len(seen)


mistakes = Table("mistake", "rates", "from_first_weights", "with_old_momentum", "batches_seen", name="mistakes")
for mistake in ("none", "the live weights are kept", "the optimizer is kept", "a new iterator at each step"):
    mistakes.add(mistake, *decorrelated(mistake))
mistakes.show()

# %% [markdown]
# `state_dict()` holds references: without a copy it changes with the model, and loading it resets nothing. An optimizer that stays pushes on with the gradients of the
# rate before. `next(iter(loader))` is the first batch each time (another draw of it, if the loader shuffles). `vivace find lr` runs
# the script as it is, in a process that ends; your weights are never touched.
#
# Measured: validation loss at the end, the median of three seeds (lowest to highest), on a CPU ([table](../../benchmarks/results/find_lr.csv)):
#
# | script | its own rate | suggested | a tenth of it | the suggestion | ten times it |
# |---|---|---|---|---|---|
# | small network, SGD | 0.1 | 0.187 | 0.180 (0.168–0.191) | **0.059 (0.044–0.067)** | 0.095 (0.063–0.362) |
# | character GPT, AdamW | 5e-5 | 6.1e-3 | 2.53 (2.45–2.64) | **2.12 (2.08–2.21)** | 2.12 (2.06–2.25) |
# | CNN, SGD with momentum | 0.01 | 0.047 | 2.02 (2.01–2.03) | 2.09 (1.97–2.85) | **0.81 (0.63–2.69)** |
#
# The suggestion is best for the small network, and as good as ten times it for the GPT, whose own rate is a hundred times too low. For the CNN it is too low: ten times it ends much better in two
# of three seeds, and worse in the third.
#
# **Why it is right.** The loss after one step at a rate says how far one step may go from where the weights are *now*. It does not know momentum that builds up, a schedule, or the end of the
# training, where smaller steps are better. The suggestion is a place to start from, often within a factor of ten of the best.
#
# **Try it**: race the rate that was found against the script's own, and two rates of another optimizer against each other.
#
#     vivace race --until 'val_loss <= 2.3' --with optimizer=lamb:0.02 --with optimizer=lamb:0.005 -- python benchmarks/lr_jobs/gpt.py
#     vivace race --until 'val_loss <= 2.3' --entry 'own: python benchmarks/lr_jobs/gpt.py' --entry 'found: python benchmarks/lr_jobs/gpt.py --lr 0.006'
#
# **Read** [`rate_test.py`](../../vivace/measure/inside/rate_test.py) and [docs/find.md](../find.md#learning-rate).
