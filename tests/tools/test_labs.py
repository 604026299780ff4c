"""The page and the notebook of each lab are those of its source."""

from __future__ import annotations

import pytest

from tools import labs
from vivace.labs.catalogue import Lab, all_labs


@pytest.mark.parametrize("lab", all_labs(), ids=lambda lab: lab.name)
def test_page_and_notebook_are_those_of_the_source(lab: Lab) -> None:
    for path, text in labs.products(lab).items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name} is out of date: run python tools/labs.py"
