"""``vivace plan scaling-law``: parse, fit, print. Mounted by ``vivace.cli.plan``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from vivace.cli.console import make_console
from vivace.cli.plan_questions import read_tokens
from vivace.errors import UserError
from vivace.plan.grading.words import number
from vivace.plan.laws.loss_law import Fitted, fit_with_ranges
from vivace.plan.laws.runs_file import read_runs
from vivace.report.plan_units import count

__all__ = ["scaling_law_command"]

_FAR = 100.0  # times the compute of the largest run: beyond that, say so


def scaling_law_command(
    files: Annotated[list[Path], typer.Argument(help="CSV files with the columns params, tokens and loss.")],
    params: Annotated[str | None, typer.Option(help="Predict the loss of a model of this size; with --tokens.")] = None,
    tokens: Annotated[str | None, typer.Option(help="Trained on so many tokens.")] = None,
    flops: Annotated[str | None, typer.Option(help="Find the best size and data for so much compute.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the fit and the answers as JSON.")] = False,
) -> None:
    """Fit L(N, D) = E + A/N^α + B/D^β on your own small runs, and ask it about larger ones.

    Examples:

        vivace plan scaling-law runs.csv

        vivace plan scaling-law runs.csv --params 1B --tokens 20B

        vivace plan scaling-law runs.csv --flops 1e21
    """
    if (params is None) != (tokens is None):
        raise UserError(
            "--params and --tokens go together", hint="vivace plan scaling-law runs.csv --params 1B --tokens 20B"
        )
    fitted = fit_with_ranges(read_runs(files))
    wanted = []
    if params is not None and tokens is not None:
        wanted.append((_read("--params", params), read_tokens(tokens)))
    if flops is not None:
        wanted.append(fitted.law.best_split(_read("--flops", flops)))
    if as_json:
        print(json.dumps(_as_json(fitted, wanted), indent=2))
    else:
        _show(fitted, wanted, best_for=flops, console=make_console())


def _read(option: str, text: str) -> float:
    value = number(text)
    if value is None or not 0 < value < float("inf"):
        raise UserError(f"{option} {text!r} is not a number above 0", hint="write 1e9, 125M or 7B")
    return value


def _as_json(fitted: Fitted, wanted: list[tuple[float, float]]) -> dict[str, object]:
    answers = []
    for params, tokens in wanted:
        low, high = fitted.range_of(params, tokens)
        loss, reach = fitted.law.loss(params, tokens), fitted.reach(params, tokens)
        answers.append(
            {"params": params, "tokens": tokens, "loss": loss, "low": low, "high": high, "times_largest_run": reach}
        )
    return {
        "law": fitted.law._asdict(),
        "runs": len(fitted.runs),
        "relative_error": fitted.relative_error,
        "left_out_error": fitted.left_out_error,
        "answers": answers,
    }


def _show(fitted: Fitted, wanted: list[tuple[float, float]], best_for: str | None, console: Console) -> None:
    law = fitted.law
    lines = [
        f"L(N, D) = {law.e:.3f} + {law.a:.3g} / N^{law.alpha:.3f} + {law.b:.3g} / D^{law.beta:.3f}",
        f"{len(fitted.runs)} runs, fitted to {fitted.relative_error:.2%} (rms); "
        f"each run is predicted by the others to {fitted.left_out_error:.2%}",
    ]
    for place, (params, tokens) in enumerate(wanted):
        low, high = fitted.range_of(params, tokens)
        label = f"best for {best_for} FLOPs: " if best_for is not None and place == len(wanted) - 1 else ""
        size = f"{count(params)} parameters on {count(tokens)} tokens"
        lines.append(f"{label}{size}: loss {law.loss(params, tokens):.3f} ({low:.3f}–{high:.3f} with one run left out)")
        if (reach := fitted.reach(params, tokens)) > _FAR:
            lines.append(f"  that is {reach:,.0f} times the compute of the largest run: the law may not hold so far")
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True)
