"""The site is built without a warning, can be searched, and asks the network for nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from docs.pages import ROOT


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
