"""Every topic of the course has a page or a command, and every lab and every term stands where it should."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def rows(name: str) -> list[tuple[str, str]]:
    lines = (DOCS / name).read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    assert all(len(row) == 2 for row in cells)
    return [(first, second) for first, second in cells[1:]]


def test_no_topic_is_without_a_place():
    for topic, where in rows("coverage.md"):
        assert topic
        assert re.search(r"\]\([\w/]+\.md\)", where), topic


def test_every_lab_stands_in_the_table():
    linked = set(re.findall(r"labs/(\w+)\.md", (DOCS / "coverage.md").read_text(encoding="utf-8")))
    assert {path.stem for path in (DOCS / "labs").glob("*.md")} - {"index"} == linked


def test_terms_are_sorted_and_explained():
    terms = rows("glossary.md")
    names = [term.replace("µ", "mu").lower() for term, _ in terms]
    assert names == sorted(names)
    assert all(meaning.endswith(".") for _, meaning in terms)
