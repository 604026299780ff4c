"""The questions backwards: the shortest, the cheapest and the largest training within limits.

There is always an answer while the model fits at all: a budget that is too small is answered with what it
pays for. Pure; calls the search over GPU counts and model sizes. Called by the CLI.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from vivace.errors import UserError
from vivace.plan.jobs.job import TransformerJob
from vivace.plan.layouts.scaling import default_counts
from vivace.plan.layouts.search import Found, search
from vivace.plan.machines.cluster import Site
from vivace.plan.models.flops import compute_optimal_tokens
from vivace.plan.models.transformer import Transformer
from vivace.plan.models.usual_batch import default_global_batch
from vivace.plan.run.whole_run import RunQuestion, whole_run
from vivace.records.plan import PlanBudget, PlanChoice, PlanRun

__all__ = ["Budget", "BudgetQuestion", "Candidate", "answer_budget", "gpt_of_size", "largest_model", "usable_counts"]

# Sizes that are tried for the largest model: 50M parameters and each 12 % more, up to 5T.
SMALLEST, STEP, SIZES = 5e7, 1.12, 102


@dataclass(frozen=True)
class Budget:
    """Limits; None is no limit."""

    days: float | None = None
    gpu_hours: float | None = None
    energy_mwh: float | None = None
    cost: float | None = None

    def limits(self) -> dict[str, float]:
        return {name: value for name, value in vars(self).items() if value is not None}

    def share(self, run: PlanRun) -> float:
        """How much of the run the limits pay for: 1 and more is all of it."""
        amounts = {
            "days": run.days.estimate,
            "gpu_hours": run.gpu_hours.estimate,
            "energy_mwh": run.energy_mwh.estimate,
            "cost": run.cost,
        }
        return min((limit / (amounts[name] or float("inf")) for name, limit in self.limits().items()), default=1.0)

    def admits(self, run: PlanRun) -> bool:
        return self.share(run) >= 1.0


@dataclass(frozen=True)
class BudgetQuestion:
    """A job, the tokens it should see, and at most so many GPUs."""

    job: TransformerJob
    site: Site
    gpus: int
    run: RunQuestion
    budget: Budget
    batch_given: bool = False
    """Otherwise each number of GPUs takes the batch that suits it."""

    def batch(self, model: Transformer, gpus: int) -> int:
        return self.job.global_batch if self.batch_given else default_global_batch(model, gpus)


@dataclass(frozen=True)
class Candidate:
    gpus: int
    best: Found
    run: PlanRun


def usable_counts(largest: int, per_node: int) -> list[int]:
    """GPU counts worth a search: doublings of a node, ``largest`` itself, and near it counts that divide well.

    >>> usable_counts(416, 8)
    [8, 16, 32, 64, 128, 224, 256, 320, 384, 400, 408, 416]
    """
    nodes = largest // per_node
    smooth = {m * 2**k for m in (3, 5, 7) for k in range(nodes.bit_length())}
    near = {n for n in smooth | {nodes, nodes - 1, nodes - 2} if nodes / 2 < n <= nodes}
    return sorted({*default_counts(largest, per_node), *(n * per_node for n in near)})


def _candidate(question: BudgetQuestion, model: Transformer, gpus: int, run: RunQuestion) -> Candidate:
    """The fastest layout of that many GPUs, or the search's ``UserError``."""
    job = replace(question.job, model=model, global_batch=question.batch(model, gpus))
    best = search(job, gpus, keep=1)[0]
    return Candidate(gpus, best, whole_run(best.step, job.global_batch, gpus, question.site.machine, None, run))


def _candidates(question: BudgetQuestion) -> tuple[list[Candidate], str | None]:
    """One for each count that can run the job, and why the largest count cannot."""
    found, why_not_all = [], None
    for gpus in usable_counts(question.gpus, question.site.machine.gpus_per_node):
        try:
            found.append(_candidate(question, question.job.model, gpus, question.run))
        except UserError as error:
            if gpus != question.gpus:
                continue
            why_not_all = error.message
            if not found:
                raise
    return found, why_not_all


def answer_budget(question: BudgetQuestion) -> PlanBudget:
    """Within the limits where they suffice; else the shortest and cheapest at all, and what they pay for."""
    every, why_not_all = _candidates(question)
    budget, job = question.budget, question.job
    inside = [one for one in every if budget.admits(one.run)]
    tokens = question.run.tokens or 0.0
    partial = None if inside else max(every, key=lambda one: budget.share(one.run))
    chosen = inside or every
    largest = _largest(question) if budget.limits() else None
    everything = next((one for one in every if one.gpus == question.gpus), None)
    return PlanBudget(
        model=job.model.name,
        parameters=job.model.parameters,
        tokens=tokens,
        gpus=question.gpus,
        limits=budget.limits(),
        within=bool(inside),
        shortest=_choice(min(chosen, key=lambda one: one.run.days.estimate)),
        cheapest=_choice(min(chosen, key=lambda one: one.run.gpu_hours.estimate)),
        all_gpus=_choice(everything) if everything else None,
        why_not_all=why_not_all,
        tokens_within=budget.share(partial.run) * tokens if partial else None,
        tokens_within_gpus=partial.gpus if partial else None,
        largest=_choice(largest) if largest else None,
        largest_sizes=_sizes(largest.best.job.model) if largest else None,
    )


def _choice(candidate: Candidate) -> PlanChoice:
    job = candidate.best.job
    return PlanChoice(
        **dict(candidate.run),
        model=job.model.name,
        parameters=job.model.parameters,
        gpus=candidate.gpus,
        layout=job.layout,
        global_batch=job.global_batch,
        step_ms=candidate.best.seconds * 1e3,
        memory_gib=candidate.best.memory_gib,
    )


def _sizes(model: Transformer) -> dict[str, int]:
    return {name: getattr(model, name) for name in ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab")}


def _largest(question: BudgetQuestion) -> Candidate | None:
    try:
        return largest_model(question)
    except UserError:
        return None  # the limits do not even pay for the smallest: the view says so


def gpt_of_size(parameters: float, like: Transformer) -> Transformer:
    """A model of about that size with the proportions of ``like``: widths and depth grow together, heads
    stay as wide.
    """
    ratio = (parameters / like.parameters) ** (1 / 3)
    hidden = max(128, round(like.hidden * ratio / 128) * 128)
    heads = max(1, hidden // like.head_dim) if hidden % like.head_dim == 0 else max(1, hidden // 128)
    kv_heads = heads if like.kv_heads == like.heads else max(k for k in range(1, 9) if heads % k == 0)
    ffn = round(like.ffn / like.hidden * hidden / 128) * 128
    per_layer = replace(
        like,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        ffn=ffn,
        head_dim_given=0,
        layer_vectors_given=None,
        outer_vectors_given=None,
    )
    rest = parameters - per_layer.embedding_parameters - per_layer.head_parameters
    layers = max(2, round(rest / per_layer.layer_parameters / 2) * 2)
    windowed = round(layers * like.windowed_layers / like.layers)
    sized = replace(per_layer, layers=layers, windowed_layers=windowed)
    return replace(sized, name=f"{like.name} scaled to {sized.parameters / 1e9:.1f}B")


def largest_model(question: BudgetQuestion) -> Candidate:
    """The largest compute-optimal model (20 tokens per parameter) that trains within the budget.

    Larger models take longer, so the sizes are bisected.
    """
    best, low, high = None, 0, SIZES
    while low < high:
        middle = (low + high) // 2
        candidate = _compute_optimal(question, SMALLEST * STEP**middle)
        if candidate is not None and question.budget.admits(candidate.run):
            best, low = candidate, middle + 1
        else:
            high = middle
    if best is None:
        raise UserError(
            f"not even a model of {SMALLEST / 1e6:.0f}M parameters stays within the budget",
            hint="raise the budget or --gpus",
        )
    return best


def _compute_optimal(question: BudgetQuestion, size: float) -> Candidate | None:
    """A model of that size on the most GPUs that can run it; None when none can."""
    model = gpt_of_size(size, question.job.model)
    tokens = compute_optimal_tokens(model.parameters)
    run = replace(question.run, tokens=tokens, samples=tokens / question.job.seq_len)
    counts = usable_counts(question.gpus, question.site.machine.gpus_per_node)
    for gpus in sorted(counts, reverse=True):
        try:
            return _candidate(question, model, gpus, run)
        except UserError:
            continue
    return None
