"""Links lead somewhere, commands of vivace have the options that pages give them, and Python is Python."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path
from urllib.parse import unquote

import pytest
from docs.pages import PAGES, ROOT, anchors, code, links
from typer.main import get_command

from vivace.cli.app import application

APP = get_command(application())
ENDS = re.compile(r"\s{2,}#.*|\s+#\s.*|\s{3,}\S.*")  # a remark after a command


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_anchors_exist(page: Path):
    broken = [link for link in links(page) if not leads_somewhere(page, unquote(link))]
    assert broken == []


def leads_somewhere(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    return target.exists() and (not anchor or (target.suffix == ".md" and anchor in anchors(target)))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_of_vivace_parse(page: Path):
    assert [f"{line}: {why}" for line in commands(page) if (why := refusal(line))] == []


def commands(page: Path) -> list[str]:
    lines = [line.strip() for block in code(page) if block.language != "python" for line in block.text.splitlines()]
    return [ENDS.sub("", line) for line in lines if line.startswith("vivace ")]


def refusal(line: str) -> str | None:
    """Why the real application would not take this line; None if it would. Nothing is run."""
    words = [word for word in shlex.split(line.replace("…", ""))[1:] if not re.fullmatch(r"\[.*|.*\]", word)]
    words = words[: words.index("--")] if "--" in words else words
    command, context = APP, new_context(APP, None)
    try:
        while words and hasattr(command, "commands"):
            command.parse_args(context, list(words))  # `vivace plan MODEL` means `vivace plan model MODEL`
            words = [*context._protected_args, *context.args]
            if not words and command.invoke_without_command:  # `vivace hardware --gpus`
                return None
            _, command, words = command.resolve_command(context, words)
            context = new_context(command, context)
        command.make_parser(context).parse_args(list(words))
    except Exception as error:  # click's UsageError, in whichever copy of click typer uses
        return getattr(error, "message", None) or repr(error)
    return None


def new_context(command, parent):
    return command.context_class(command, info_name=command.name, parent=parent, **command.context_settings)


@pytest.mark.parametrize("line", ["vivace mesure -- python x.py", "vivace find speed", "vivace tune --bugdet 3"])
def test_a_line_that_would_not_run_is_seen(line: str):
    assert refusal(line)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_compiles(page: Path):
    for block in code(page):
        if block.language == "python":
            ast.parse(block.text)
