"""The page and the notebook of each lab are those of its source."""

from __future__ import annotations

import pytest

from tools import labs
from vivace.labs.catalogue import Lab, all_labs


@pytest.mark.parametrize("lab", all_labs(), ids=lambda lab: lab.name)
def test_page_and_notebook_are_those_of_the_source(lab: Lab) -> None:
    for path, text in labs.products(lab).items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name} is out of date: run python tools/labs.py"


def test_the_index_has_every_lab_and_every_other_page() -> None:
    ((path, text),) = labs.index().items()
    assert path.read_text(encoding="utf-8") == text, "index.md is out of date: run python tools/labs.py"
    pages = {page.name for page in path.parent.glob("*.md")} - {"index.md"}
    assert {name for name in pages if f"]({name})" in text} == pages
    rows = [line for line in text.splitlines() if ".md) |" in line]
    assert len(rows) == len(all_labs())
    assert all(row.count(" | ") == 3 and row.endswith(" s |") for row in rows)
