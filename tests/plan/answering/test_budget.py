"""Budgets are always answered: within the limits, or with what they pay for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.errors import UserError
from vivace.plan.answering.budget import (
    Budget,
    BudgetQuestion,
    answer_budget,
    gpt_of_size,
    largest_model,
    usable_counts,
)
from vivace.plan.answering.make_job import transformer_job
from vivace.plan.answering.request import Request
from vivace.plan.machines.cluster import machine_for
from vivace.plan.models.built_in import named_transformer
from vivace.plan.run.whole_run import RunQuestion


def asked(model: str, gpus: int, tokens: float, *, batch: int | None = None, **limits: float) -> BudgetQuestion:
    site = machine_for("dgx-a100")
    found = named_transformer(model)
    request = Request(model, cluster="dgx-a100", gpus=gpus, global_batch=batch, compile=True)
    job, _ = transformer_job(request, found, site)
    run = RunQuestion(tokens / found.seq_len, tokens)
    return BudgetQuestion(job, site, gpus, run, Budget(**limits), batch_given=batch is not None)


def test_the_shortest_and_the_cheapest_run():
    answer = answer_budget(asked("llama-3-8b", 64, 1e9))
    assert answer.within
    assert answer.shortest.days.estimate <= answer.cheapest.days.estimate
    assert answer.cheapest.gpu_hours.estimate <= answer.shortest.gpu_hours.estimate
    assert answer.largest is None  # nothing limits it


@pytest.fixture(scope="module")
def too_small():
    """416 GPUs are 2^5 x 13: neither the heads nor the layers of GPT-3 divide by 13."""
    return answer_budget(asked("gpt-175b", 416, 3e12, days=30))


def test_a_budget_that_is_too_small_is_answered_with_what_it_pays_for(too_small):
    assert not too_small.within
    assert too_small.shortest.days.estimate > 30
    part = too_small.tokens_within / too_small.tokens
    assert part == pytest.approx(30 / too_small.shortest.days.estimate, rel=0.01)
    assert too_small.tokens_within_gpus == 416
    assert too_small.largest.days.estimate <= 30
    assert too_small.largest.parameters < 1e11


def test_all_416_gpus_are_used(too_small):
    assert too_small.why_not_all is None
    layout = too_small.all_gpus.layout
    assert layout.gpus == too_small.shortest.gpus == 416
    assert layout.data % 13 == 0
    assert too_small.all_gpus.global_batch % layout.data == 0


def test_a_count_that_cannot_be_used_says_why_and_what_is_used():
    answer = answer_budget(asked("gpt-13b", 419, 1e11, batch=2048, days=365))
    assert "419" in answer.why_not_all
    assert answer.all_gpus is None
    assert answer.within
    assert 256 <= answer.shortest.gpus < 419
    assert answer.largest is not None


def test_a_model_that_fits_nowhere_is_refused():
    with pytest.raises(UserError, match="does not fit") as caught:
        answer_budget(asked("gpt-175b", 8, 1e11))
    assert "--gpus" in caught.value.hint


def test_the_largest_model_uses_the_budget():
    small, large = (largest_model(asked("llama-3-8b", 64, 1e9, days=days)) for days in (2, 8))
    assert small.run.days.estimate <= 2
    assert 4 < large.run.days.estimate <= 8
    assert large.best.job.model.parameters > small.best.job.model.parameters
    with pytest.raises(UserError, match="50M parameters"):
        largest_model(asked("llama-3-8b", 64, 1e9, gpu_hours=0.001))


@given(st.integers(1, 5000), st.sampled_from([1, 4, 8, 16]))
def test_counts_never_pass_the_limit_and_hold_it(largest, per_node):
    counts = usable_counts(largest, per_node)
    assert counts == sorted(set(counts))
    assert min(counts) >= 1
    assert max(counts) == largest


@pytest.mark.parametrize("size", [1e9, 2e10, 3e11])
def test_a_scaled_model_has_about_the_size_asked_for(size):
    found = gpt_of_size(size, named_transformer("llama-3-8b"))
    assert found.parameters == pytest.approx(size, rel=0.35)
    assert found.hidden % found.heads == 0
    assert found.heads % found.kv_heads == 0
