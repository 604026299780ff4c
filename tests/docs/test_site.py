"""The site is built without a warning, can be searched, and asks the network for nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from docs.pages import ROOT

from vivace.errors import ExitCode
from vivace.practices.engine.registry import all_practices


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    words = ["-q", "-W", "--keep-going", "-d", str(folder / "trees"), "-c", str(ROOT / "tools/site")]
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *words, str(ROOT / "docs"), str(folder / "html")],
        capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return folder / "html"


def test_every_page_is_there_and_can_be_found(site: Path):
    index = (site / "searchindex.js").read_text()
    for page in (ROOT / "docs").rglob("*.md"):
        name = str(page.relative_to(ROOT / "docs").with_suffix(""))
        assert (site / f"{name}.html").exists()
        assert f'"{name}"' in index


def test_nothing_comes_from_the_network(site: Path):
    loaded = re.compile(r"<(?:script|img)[^>]*src=\"https?:|<link[^>]*rel=\"stylesheet\"[^>]*href=\"https?:")
    assert [page.name for page in site.rglob("*.html") if loaded.search(page.read_text())] == []


def test_practices_and_commands_come_from_the_code(site: Path):
    page = (site / "practices.html").read_text()
    assert all(f">{one.name}<" in page for one in all_practices())
    page = (site / "commands.html").read_text()
    assert "<h2>vivace plan scaling-law<" in page
    assert "Examples:" in page


def test_the_page_of_exit_codes_has_all_of_them():
    page = (ROOT / "docs/exit_codes.md").read_text()
    assert all(f"\n| {code.value} | " in page for code in ExitCode)
