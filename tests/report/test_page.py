"""The HTML page: self-contained, and text from outside is escaped."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from vivace.report.page import page


def test_the_title_is_escaped_and_sections_are_kept():
    text = page("<script>alert(1)</script>", ["<h2>mine</h2>"])
    assert "<script>" not in text
    assert "<h2>mine</h2>" in text


def test_a_plan_as_a_page_needs_no_network(vivace_here: Callable, tmp_path: Path):
    done = vivace_here("plan", "gpt2-124m", "--gpu", "h200", "--gpus", "1", "--html", "plan.html")
    assert done.code == 0, done.err
    text = (tmp_path / "plan.html").read_text()
    assert "gpt2-124m" in text
    assert "<svg" in text
    assert not re.search(r"""(src|href)=["']https?:""", text)
    assert "prefers-color-scheme: dark" in text
