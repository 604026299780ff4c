"""Does the script know the options of its command? A wrong one should not wait in the queue to be found.

The script's text is read, not run: what its ``argparse`` parser is told is plain in most scripts. Where the text leaves
doubt and an option looks wrong, ``SCRIPT --help`` is asked, which argparse answers without training. Whatever stays in
doubt is let through. Called before a job is sent.
"""

from __future__ import annotations

import ast
import contextlib
import difflib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vivace.errors import UserError
from vivace.launch.words import script_of

__all__ = ["check_options"]

_HELP_S = 20.0
_MAX_BYTES = 2**20
_OTHER_READERS = {"absl", "click", "configargparse", "fire", "hydra", "jsonargparse", "simple_parsing", "typer", "tyro"}
_LENIENT = {"parse_known_args", "parse_known_intermixed_args", "parse_intermixed_args"}
_IN_HELP = re.compile(r"(?<![\w-])--?[A-Za-z][\w-]*")


@dataclass(frozen=True)
class Known:
    """What a script's text tells. ``certain``: these are all options that its parser takes."""

    options: frozenset[str]
    negated: bool  # --no-NAME may go with --NAME
    certain: bool
    help_is_safe: bool


def check_options(command: Sequence[str]) -> None:
    """A ``UserError`` when the script surely rejects an option of the command."""
    script = script_of(command)
    if script is None or not script.endswith(".py") or not Path(script).is_file():
        return
    before, words = _split(command, script)
    known = _known(Path(script))
    if known is None:
        return
    wrong = _unknown(words, known.options, known.negated)
    if wrong and not known.certain:
        told = _told_by_help((*before, script), known)
        if told is None:
            return
        wrong = _unknown(wrong, told, known.negated)
        known = Known(told, known.negated, True, True)
    if wrong:
        near = difflib.get_close_matches(wrong[0], sorted(known.options), n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UserError(
            f"{script} does not know the option {wrong[0]}, and would fail when the job starts",
            hint=f"{hint}see python {script} --help; --no-check (check=False) sends the job all the same",
        )


def _split(command: Sequence[str], script: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    place = list(command).index(script)
    return tuple(command[:place]), tuple(command[place + 1 :])


def _unknown(words: Iterable[str], options: frozenset[str], negated: bool) -> tuple[str, ...]:
    """The option words that argparse would not take, as it reads them: abbreviated, with ``=``, or joined (``-b128``).

    >>> _unknown(["-b128", "--image=3", "--lr", "-0.1", "--image_size", "8"], frozenset({"-b", "--image-size", "--lr"}), False)
    ('--image_size',)
    """  # noqa: E501
    wrong = []
    for word in words:
        if word == "--":
            break
        if not word.startswith("-") or word == "-" or " " in word or re.match(r"-\.?\d", word):
            continue
        name = word.partition("=")[0]
        spellings = {name, f"--{name[5:]}"} if negated and name.startswith("--no-") else {name}
        if name.startswith("--"):
            fits = any(option.startswith(spelling) for option in options for spelling in spellings)
        else:
            fits = name[:2] in options or any(option.startswith(name) for option in options)
        if not fits:
            wrong.append(name)
    return tuple(wrong)


def _known(script: Path) -> Known | None:
    """None for a script without an argparse parser of its own, or one that takes what it does not know."""
    try:
        if script.stat().st_size > _MAX_BYTES:
            return None
        text = script.read_text(encoding="utf-8")
        tree = ast.parse(text)
    except (OSError, ValueError, SyntaxError, RecursionError):
        return None
    reading = _Reading()
    reading.visit(tree)
    if not reading.makes_parser or reading.lenient or not reading.parsed_at:
        return None
    first = min(reading.parsed_at)
    loops = (ast.For, ast.While, ast.With)
    works_before = any(isinstance(each, loops) and each.lineno < first for each in tree.body)
    return Known(
        frozenset({"-h", "--help", *reading.options}),
        "BooleanOptionalAction" in text,
        # Whoever gets a parser may tell it more.
        certain=reading.certain and not (reading.parsers - {""}) & reading.handed_on,
        help_is_safe=not works_before and "SUPPRESS" not in text,
    )


class _Reading(ast.NodeVisitor):
    """Walks through a script: which parsers it makes, what they are told, who else gets them."""

    def __init__(self) -> None:
        self.makes_parser = False
        self.parsers: set[str] = set()  # names of parsers and of their groups
        self.handed_on: set[str] = set()  # names that are given to a function
        self.options: set[str] = set()
        self.parsed_at: list[int] = []  # lines
        self.lenient = False
        self.certain = True

    def visit_Import(self, node: ast.Import) -> None:
        self._note_imports(alias.name for alias in node.names)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        self._note_imports([node.module or ""])

    def _note_imports(self, names: Iterable[str]) -> None:
        self.lenient |= any(name.partition(".")[0] in _OTHER_READERS for name in names)

    def visit_Call(self, node: ast.Call) -> None:
        called = _name(node.func)
        if isinstance(node.func, ast.Attribute) and called in ("add_argument", "parse_args"):
            self.parsers.add(_name(node.func.value))
        if called == "ArgumentParser":
            self.makes_parser = True
            own = {"parents", "prefix_chars", "fromfile_prefix_chars", "add_help"}
            self.certain &= not any(keyword.arg is None or keyword.arg in own for keyword in node.keywords)
        elif called == "add_argument":
            self._note_argument(node)
        elif called in _LENIENT:
            self.lenient = True
        elif called == "parse_args" and isinstance(node.func, ast.Attribute):
            self.parsed_at.append(node.lineno)
            self.lenient |= bool(node.args or node.keywords)  # words of its own, perhaps
        self.handed_on.update(_name(each) for each in (*node.args, *(keyword.value for keyword in node.keywords)))
        self.generic_visit(node)

    def _note_argument(self, node: ast.Call) -> None:
        names = [each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        self.certain &= len(names) == len(node.args)
        self.options.update(name for name in names if name.startswith("-"))
        for keyword in node.keywords:
            value = keyword.value
            everything = isinstance(value, ast.Constant) and value.value == "..."
            if keyword.arg == "nargs" and (everything or not isinstance(value, ast.Constant)):
                self.lenient = True  # REMAINDER: the rest is for another command

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr == "argv":  # changed before it is parsed, perhaps
            self.certain = False
        self.generic_visit(node)


def _name(node: ast.expr) -> str:
    """``parser`` of ``parser`` and of ``self.parser``; nothing of another expression."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _told_by_help(start: tuple[str, ...], known: Known) -> frozenset[str] | None:
    """The options that ``SCRIPT --help`` lists; None where it did not answer as argparse does, or not soon."""
    if not known.help_is_safe or len(start) < 2 or shutil.which(start[0]) is None or "python" not in start[0]:
        return None
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "200"}
    try:
        process = subprocess.Popen(
            [*start, "--help"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return None
    try:
        out, _ = process.communicate(timeout=_HELP_S)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return None
    text = out.decode(errors="replace")
    if process.returncode != 0 or "usage:" not in text or "--help" not in text:
        return None
    return frozenset(_IN_HELP.findall(text)) | known.options
