"""The questions backwards: the largest model, the shortest time or the cheapest run within a budget.

Pure; calls the search over GPU counts or model sizes. Called by the CLI.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from vivace.errors import UserError
from vivace.plan.cluster import Site
from vivace.plan.flops import compute_optimal_tokens
from vivace.plan.job import TransformerJob
from vivace.plan.scaling import default_counts
from vivace.plan.search import Found, search
from vivace.plan.transformer import Transformer
from vivace.plan.whole_run import RunQuestion, whole_run
from vivace.records.plan import PlanRun

__all__ = ["Budget", "Candidate", "cheapest_run", "gpt_of_size", "largest_model", "shortest_run"]


@dataclass(frozen=True)
class Budget:
    """Limits; None is no limit."""

    days: float | None = None
    gpu_hours: float | None = None
    energy_mwh: float | None = None
    cost: float | None = None

    def admits(self, run: PlanRun) -> bool:
        pairs = (
            (self.days, run.days.estimate),
            (self.gpu_hours, run.gpu_hours.estimate),
            (self.energy_mwh, run.energy_mwh.estimate),
            (self.cost, run.cost),
        )
        return all(limit is None or (value is not None and value <= limit) for limit, value in pairs)


@dataclass(frozen=True)
class Candidate:
    gpus: int
    best: Found
    run: PlanRun


def _candidates(job: TransformerJob, site: Site, counts: list[int], question: RunQuestion) -> list[Candidate]:
    found = []
    for gpus in counts:
        try:
            best = search(job, gpus, keep=1)[0]
        except UserError:
            continue
        run = whole_run(best.step, job.global_batch, gpus, site.machine, None, question)
        found.append(Candidate(gpus, best, run))
    return found


def _need(candidates: list[Candidate], budget: Budget) -> list[Candidate]:
    inside = [one for one in candidates if budget.admits(one.run)]
    if inside:
        return inside
    if not candidates:
        raise UserError("no number of GPUs can run this job", hint="raise --max-gpus or the global batch")
    fastest = min(candidates, key=lambda one: one.run.days.estimate)
    thrifty = min(candidates, key=lambda one: one.run.gpu_hours.estimate)
    raise UserError(
        "no number of GPUs stays within the budget",
        hint=f"{fastest.gpus} GPUs need {fastest.run.days.estimate:.1f} days, "
        f"{thrifty.gpus} GPUs need {thrifty.run.gpu_hours.estimate:,.0f} GPU-hours",
    )


def shortest_run(job: TransformerJob, site: Site, max_gpus: int, question: RunQuestion, budget: Budget) -> Candidate:
    """The GPU count that ends first, among those within the budget."""
    counts = default_counts(max_gpus, site.machine.gpus_per_node)
    return min(_need(_candidates(job, site, counts, question), budget), key=lambda one: one.run.days.estimate)


def cheapest_run(job: TransformerJob, site: Site, max_gpus: int, question: RunQuestion, budget: Budget) -> Candidate:
    """The GPU count that uses the fewest GPU-hours, among those within the budget (a deadline, mostly)."""
    counts = default_counts(max_gpus, site.machine.gpus_per_node)
    return min(_need(_candidates(job, site, counts, question), budget), key=lambda one: one.run.gpu_hours.estimate)


def gpt_of_size(parameters: float, like: Transformer) -> Transformer:
    """A model of about that size with the proportions of ``like``: widths and depth grow together, heads
    stay as wide.
    """
    ratio = (parameters / like.parameters) ** (1 / 3)
    hidden = max(128, round(like.hidden * ratio / 128) * 128)
    heads = max(1, hidden // like.head_dim) if hidden % like.head_dim == 0 else max(1, hidden // 128)
    kv_heads = heads if like.kv_heads == like.heads else max(k for k in range(1, 9) if heads % k == 0)
    ffn = round(like.ffn / like.hidden * hidden / 128) * 128
    per_layer = replace(like, hidden=hidden, heads=heads, kv_heads=kv_heads, ffn=ffn, head_dim_given=0)
    rest = parameters - per_layer.embedding_parameters - per_layer.head_parameters
    layers = max(2, round(rest / per_layer.layer_parameters / 2) * 2)
    sized = replace(per_layer, layers=layers)
    return replace(sized, name=f"{like.name} scaled to {sized.parameters / 1e9:.1f}B")


def largest_model(
    job: TransformerJob, site: Site, gpus: int, question: RunQuestion, budget: Budget
) -> tuple[Transformer, Candidate]:
    """The largest compute-optimal model (20 tokens per parameter) that trains within the budget on
    ``gpus``.
    """
    low, best = 5e7, None
    size = low
    while size < 5e12:
        model = gpt_of_size(size, job.model)
        tokens = compute_optimal_tokens(model.parameters)
        asked = replace(question, tokens=tokens, samples=tokens / job.seq_len)
        try:
            candidate = _candidates(replace(job, model=model), site, [gpus], asked)[0]
        except IndexError:
            break
        if not budget.admits(candidate.run):
            break
        best, size = (model, candidate), size * 1.12
    if best is None:
        raise UserError(
            f"not even a model of {low / 1e6:.0f}M parameters stays within the budget",
            hint="raise the budget or --gpus",
        )
    return best
