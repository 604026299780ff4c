"""The answer of ``vivace plan budget`` in a terminal: what stays within the limits, or what they pay for.

Knows the ``PlanBudget`` record and nothing else.
"""

from __future__ import annotations

from rich.console import Console

from vivace.records.plan import PlanBudget, PlanChoice
from vivace.report.plan_layout import degrees
from vivace.report.plan_units import count, days, energy, gpu_hours, money

__all__ = ["show_budget"]

LIMIT_WORDS = {"days": "days", "gpu_hours": "GPU-hours", "energy_mwh": "MWh", "cost": "in cost"}


def show_budget(answer: PlanBudget, console: Console) -> None:
    console.print(f"[bold]{answer.model}[/] on {count(answer.tokens)} tokens, {_limits(answer)}", soft_wrap=True)
    for sentence in _sentences(answer):
        console.print(sentence, highlight=False, soft_wrap=True)
    beyond = "" if answer.within else " (beyond the limits)"
    _show(f"shortest{beyond}", answer.shortest, console)
    _show(f"fewest GPU-hours{beyond}", answer.cheapest, console)
    if answer.largest is not None:
        sizes = f"{count(answer.largest.parameters)} parameters, {count(answer.largest.tokens or 0)} tokens"
        _show(f"largest compute-optimal model: {sizes}", answer.largest, console)


def _limits(answer: PlanBudget) -> str:
    limits = [f"{value:g} {LIMIT_WORDS[name]}" for name, value in answer.limits.items()]
    return "at most " + ", ".join([f"{answer.gpus:,} GPUs", *limits])


def _sentences(answer: PlanBudget) -> list[str]:
    said = []
    if not answer.within and answer.tokens_within is not None:
        share = 100 * answer.tokens_within / answer.tokens
        said.append(
            f"The limits are too small for all tokens: they pay for {count(answer.tokens_within)} tokens "
            f"({share:.2g} %) on {answer.tokens_within_gpus:,} GPUs."
        )
    if answer.limits and answer.largest is None:
        said.append("No compute-optimal model of 50 M parameters or more stays within the limits.")
    if answer.why_not_all is not None:
        said.append(f"Not all {answer.gpus:,} GPUs can be used: {answer.why_not_all}.")
    elif answer.within and answer.all_gpus is not None and answer.shortest.gpus < answer.gpus:
        slower = answer.all_gpus.days.estimate > answer.shortest.days.estimate
        why = "take longer" if slower else "go beyond the limits"
        said.append(
            f"The shortest run uses {answer.shortest.gpus:,} of the {answer.gpus:,} GPUs: "
            f"all of them would {why} ({days(answer.all_gpus.days).split(' [')[0]}, {degrees(answer.all_gpus.layout)})."
        )
    return said


def _show(name: str, choice: PlanChoice, console: Console) -> None:
    figures = [days(choice.days), gpu_hours(choice.gpu_hours), energy(choice.energy_mwh)]
    if choice.cost is not None:
        figures.append(money(choice.cost, choice.currency))
    console.print(f"[bold]{name}[/]: {choice.gpus:,} GPUs, {degrees(choice.layout)}", highlight=False, soft_wrap=True)
    console.print(f"    {', '.join(figures)}".replace("[", "\\["), highlight=False, soft_wrap=True)
