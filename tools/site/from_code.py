"""Tables and texts that the site takes from the code, so that they cannot be out of date."""

from __future__ import annotations

from typing import Any

from typer.main import get_command

from vivace.cli.app import application
from vivace.practices.engine.registry import all_practices

__all__ = ["commands", "practices"]


def practices() -> str:
    rows = [
        f"| `{one.name}` | {_cell(one.title)} | {one.family} | {one.risk} | {'yes' if one.change else 'by hand'} |"
        for one in sorted(all_practices(), key=lambda one: (one.family, one.name))
    ]
    return "\n".join(
        ["## All practices", "", "| practice | what | family | risk | from outside |", "|" + "---|" * 5, *rows]
    )


def commands() -> str:
    return "\n\n".join(_sections("vivace", get_command(application())))


def _sections(name: str, command: Any) -> list[str]:
    """A command's help, then those of the commands below it."""
    below = getattr(command, "commands", {})
    text = (command.help or "").replace("\b", "").strip()
    own = [] if name == "vivace" else [f"## {name}\n\n```\n{text}\n```"]
    return own + [section for one in below for section in _sections(f"{name} {one}", below[one])]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
