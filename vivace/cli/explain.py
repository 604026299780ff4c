"""``vivace explain FILE``: parse, call ``vivace.train.deepspeed``, print."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vivace.cli.console import make_console
from vivace.cli.showing import print_record
from vivace.report.explained_view import explained_view
from vivace.train.deepspeed.reading import read_config
from vivace.train.deepspeed.translate import translate

__all__ = ["explain"]


def explain(
    file: Annotated[Path, typer.Argument(help="A DeepSpeed configuration (JSON).")],
    ranks: Annotated[
        int | None, typer.Option(min=1, help="Processes in all. Default: what the batch sizes say, or 8.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print only the record on stdout.")] = False,
) -> None:
    """Translate a DeepSpeed configuration into vivace's terms, key by key, and print the commands that correspond.

    Every key is translated, not needed (with the reason) or not supported. Nothing is run.

    Examples:

        vivace explain ds_config_zero3.json

        vivace explain ds_config.json --ranks 32 --json
    """
    explained = translate(read_config(file), str(file), ranks)
    if json:
        print_record(explained)
    else:
        make_console(highlight=False).print(explained_view(explained), crop=False)
