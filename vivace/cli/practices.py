"""``vivace practices``: what vivace knows how to improve, as a table, and one practice on a page of its own."""

from __future__ import annotations

import json as json_format
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from vivace.cli.console import make_console
from vivace.practices.engine.gains import MeasuredGain, measured_gains
from vivace.practices.engine.practice import Practice
from vivace.practices.engine.registry import all_practices, get_practice, split_word
from vivace.report.fitting import FittingTable

__all__ = ["practices"]


def practices(
    name: Annotated[str | None, typer.Argument(help="The practice to explain. Default: list all.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")] = False,
) -> None:
    """List what vivace knows how to improve, or explain one practice.

    Examples:

        vivace practices                     all of them, with their risk

        vivace practices channels_last       why it helps, its source, the lines to write, measured gains

        vivace practices --json              for scripts

    `vivace run --with NAME -- COMMAND` applies those marked "from outside" without editing the script.
    """
    if name is None:
        known = all_practices()
        if json:
            _print_json([_as_dict(practice) for practice in known])
        else:
            make_console(highlight=False).print(_table(known))
        return
    practice = get_practice(split_word(name)[0])
    if json:
        _print_json(_as_dict(practice))
    else:
        _print_page(practice, measured_gains(practice.name))


def _print_json(content: Any) -> None:
    typer.echo(json_format.dumps(content, indent=2, ensure_ascii=False))


def _as_dict(practice: Practice) -> dict[str, Any]:
    return {
        "name": practice.name,
        "title": practice.title,
        "family": practice.family,
        "risk": practice.risk,
        "applies": practice.change is not None,
        "argument": practice.argument,
        "excludes": list(practice.excludes),
        "why": practice.why,
        "source": practice.source,
        "by_hand": practice.by_hand,
        "measured_gains": [asdict(gain) for gain in measured_gains(practice.name)],
    }


def _table(known: tuple[Practice, ...]) -> Table:
    table = FittingTable(box=None, pad_edge=False, header_style="bold", caption_justify="left")
    for column in ("practice", "what", "family", "risk", "from outside"):
        table.add_column(column, no_wrap=column == "practice")
    for practice in sorted(known, key=lambda one: (one.family, one.name)):
        outside = "yes" if practice.change is not None else "by hand"
        table.add_row(practice.name, escape(practice.title), practice.family, practice.risk, outside)
    table.caption = (
        "exact: same numbers; rounding: same maths, other rounding; algorithmic: another training.\n"
        "vivace practices NAME explains one"
    )
    return table


def _print_page(practice: Practice, gains: tuple[MeasuredGain, ...]) -> None:
    console = make_console(highlight=False)
    console.print(f"[bold]{practice.name}[/]: {escape(practice.title)}")
    console.print(f"{practice.family}, risk: {practice.risk}", style="dim")
    for heading, text in (
        ("Why", practice.why),
        ("By hand", practice.by_hand),
        ("From outside", _from_outside(practice)),
        ("Not together with", ", ".join(practice.excludes)),
        ("Measured gains", _gains(gains)),
        ("Source", practice.source),
    ):
        if text:
            console.print(f"\n[bold]{heading}[/]")
            console.print(escape(text))


def _from_outside(practice: Practice) -> str:
    if practice.change is None:
        return "not possible: it is found, located and priced by `vivace check`, and changed by you"
    argument = f"={practice.argument}" if practice.argument else ""
    text = f"vivace run --with {practice.name} -- python train.py …"
    return f"{text}\nwith an argument: {practice.name}{argument}" if argument else text


def _gains(gains: tuple[MeasuredGain, ...]) -> str:
    if not gains:
        return "not measured yet"
    return "\n".join(
        f"{gain.ratio:.2f}x ({gain.low:.2f} to {gain.high:.2f} by the steps of one run each) {gain.setting} "
        f"on {gain.script}, {gain.device} "
        f"[{gain.source_file}]"
        for gain in gains
    )
