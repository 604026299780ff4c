"""``vivace run --ranks``: the proof that ranks train as one process does, and what is said of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer
from rich.console import Console
from rich.markup import escape

from vivace.errors import ExitCode
from vivace.measure.folder import name_of_command, new_run_folder
from vivace.records.equality import Equality, EqualityVerdict
from vivace.tune.ranks.proving import prove_equal
from vivace.tune.ranks.remembered import key_of, recall, remember

__all__ = ["proved", "told"]


def proved(
    command: Sequence[str], mode: str, words: Sequence[str], ranks: int, output: Path, name: str | None, again: bool,
    console: Console,
) -> Equality:  # fmt: skip
    """From an earlier run, unless ``again``; else the first steps are compared now. Raises ``UserError`` where they
    differ."""
    key = key_of(command, (mode, *words), ranks)
    known = None if again else recall(output, key)
    if known is not None:
        console.print(f"{told(known)}, proved {known.proved_at[:10]}", soft_wrap=True)
        return known
    why = "the first run of this command" if not again else "a proof"
    console.print(
        f"vivace: {why} on {ranks} ranks: its first steps are compared with one process (--no-prove skips it)",
        style="dim",
        soft_wrap=True,
    )
    folder = new_run_folder(output, f"{name or name_of_command(command)}-proof")
    try:
        with console.status("") as status:
            equality = prove_equal(
                command, mode, words, ranks, folder, lambda side: status.update(f"comparing the first steps: {side}")
            )
    except KeyboardInterrupt:
        console.print("[bold yellow]vivace:[/] interrupted; the training did not begin")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    equality.save(folder / "equality.json")
    remember(output, key, equality)
    console.print(f"{told(equality)}; compared in {equality.seconds:.0f} s", soft_wrap=True)
    return equality


def told(equality: Equality) -> str:
    if equality.verdict is EqualityVerdict.EQUAL:
        return (
            f"[green]✓[/] vivace: {equality.ranks} ranks with [bold]{escape(equality.mode)}[/]: {escape(equality.says)}"
        )
    return f"[yellow]–[/] vivace: not compared with one process: {escape(equality.says)}"
