"""``vivace score RACE…``: AlgoPerf's score of entries that raced on several workloads; parse, call, print."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from vivace.cli.console import make_console
from vivace.errors import UserError
from vivace.race.algoperf import leaderboards, score_races
from vivace.race.racing import RECORD
from vivace.records.race import Race
from vivace.report.figures import plain
from vivace.report.fitting import FittingTable

__all__ = ["score"]


def score(
    races: Annotated[
        list[Path] | None, typer.Argument(help="Folders of races, one for each workload.", show_default=False)
    ] = None,
    algoperf: Annotated[bool, typer.Option("--algoperf", help="Show AlgoPerf's own leaderboards.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")] = False,
) -> None:
    """Score entries over several workloads as AlgoPerf does: 1 is always fastest, 0 is never within 4 times of it.

    Every race is a workload and must have the same entries, by name.

    Examples:

        vivace score vivace-runs/race-cifar-001 vivace-runs/race-gpt-001

        vivace score --algoperf
    """
    if algoperf == bool(races):
        raise UserError("give the folders of races, or --algoperf", hint="vivace score vivace-runs/race-train-001")
    if algoperf:
        _show_leaderboards(json)
        return
    records = [Race.load(path / RECORD if path.is_dir() else path) for path in races or ()]
    scored = score_races(records)
    if json:
        print(
            json_module.dumps(
                [{"name": s.name, "score": s.score, "ratios": [_json(r) for r in s.ratios]} for s in scored]
            )
        )
        return
    table = FittingTable(box=None, pad_edge=False, header_style="dim")
    for column in ("entry", "score", *(Path(record.folder).name for record in records)):
        table.add_column(column, justify="left" if column == "entry" else "right")
    for one in scored:
        table.add_row(Text(one.name), f"{one.score:.4f}", *(f"{plain(ratio, 3)}×" for ratio in one.ratios))
    make_console(highlight=False).print(table)


def _json(ratio: float) -> float | None:
    """JSON has no infinity: null is an entry that did not arrive, or took more than four times as long."""
    return ratio if ratio != float("inf") else None


def _show_leaderboards(json: bool) -> None:
    boards = leaderboards()
    if json:
        print(json_module.dumps([{"version": b.version, "source": b.source, **b.tracks} for b in boards]))
        return
    console = make_console(highlight=False)
    for board in boards:
        console.print(f"\n[bold]{board.version}[/] [dim]{board.source}[/]")
        for track, rows in board.tracks.items():
            table = FittingTable(box=None, pad_edge=False, header_style="dim")
            table.add_column(track)
            table.add_column("score", justify="right")
            for name, value in sorted(rows.items(), key=lambda row: -row[1]):
                table.add_row(Text(name), f"{value:.4f}")
            console.print(table)
