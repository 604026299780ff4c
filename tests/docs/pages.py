"""The pages of the documentation as tests read them: links, anchors, lines of code."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])


@dataclass(frozen=True)
class Code:
    language: str
    text: str


def links(page: Path) -> Iterator[str]:
    """What the page links to and shows, as written; addresses of the web are left out."""
    for token in _parsed(page):
        for child in token.children or ():
            target = child.attrs.get("href") or child.attrs.get("src")
            if isinstance(target, str) and not re.match(r"[a-z]+:", target):
                yield target


def anchors(page: Path) -> set[str]:
    """The names that GitHub gives to the headings."""
    found: set[str] = set()
    tokens = _parsed(page)
    for token, after in itertools.pairwise(tokens):
        if token.type == "heading_open":
            text = "".join(child.content for child in after.children or () if child.type in ("text", "code_inline"))
            name = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
            number = next(n for n in range(1000) if (f"{name}-{n}" if n else name) not in found)
            found.add(f"{name}-{number}" if number else name)
    return found


def code(page: Path) -> Iterator[Code]:
    for token in _parsed(page):
        if token.type in ("fence", "code_block"):
            yield Code(token.info.strip(), token.content)


def _parsed(page: Path) -> list:
    return MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8"))
