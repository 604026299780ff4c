"""The page in a real browser: complete, silent, without network, and as wide as a phone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from conftest import environment
from forked.here import forked_scripts
from report.browser import Browser, needs_chromium
from report.made import EVIL, made_finding, made_measurement, made_proof, made_trial
from report.sample import build_sample
from report.test_run_page import PROOF_SECTIONS

from vivace.records.finding import Findings
from vivace.report.run_folder import RunFolder, read_run
from vivace.report.run_page import run_page

pytestmark = needs_chromium

SECTIONS = "[...document.querySelectorAll('section')].map(section => section.id)"
WIDTH = "document.documentElement.scrollWidth"
LONG = "y" * 4000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder of real trials, and its page."""
    folder = tmp_path_factory.mktemp("runs") / "classifier-001"
    folder.mkdir()
    with patch.dict(os.environ, environment(), clear=True), forked_scripts():
        build_sample(folder)
    (folder / "report.html").write_text(run_page(read_run(folder)))
    return folder / "report.html"


def write(path: Path, run: RunFolder) -> Path:
    path.write_text(run_page(run))
    return path


def test_a_real_run_loads_without_requests_and_complaints(browser: Browser, sample: Path):
    page = browser.open(sample)
    assert page.evaluate(SECTIONS) == PROOF_SECTIONS
    assert page.requests == [sample.resolve().as_uri()]
    assert page.complaints == []


def test_a_real_run_draws_its_waterfall_and_its_losses(browser: Browser, sample: Path):
    page = browser.open(sample)
    assert page.evaluate("document.querySelectorAll('#gains figure .row').length") == 3
    assert page.evaluate("document.querySelectorAll('#losses polyline.after').length") == 2
    assert page.evaluate("document.querySelector('#steps rect').getBoundingClientRect().height") > 10


@pytest.mark.parametrize("width", [360, 1000])
def test_the_page_is_as_wide_as_the_screen(browser: Browser, sample: Path, width: int):
    assert browser.open(sample, width=width).evaluate(WIDTH) == width


def test_hostile_and_endless_text_neither_runs_nor_widens_the_page(browser: Browser, tmp_path: Path):
    trials = (
        made_trial("a", (), 100.0),
        made_trial(LONG, (LONG,), None, outcome="crash", message=f"{EVIL} {LONG}"),
    )
    proof = made_proof(proposed=(made_finding(title=LONG, by_hand=LONG),), notes=(LONG, EVIL))
    runs = {
        "proof": RunFolder(tmp_path, proof=proof, trials=trials),
        "measurement": RunFolder(tmp_path, measurement=made_measurement(notes=(LONG,))),
        "findings": RunFolder(
            tmp_path, findings=Findings(measurement=LONG, findings=(made_finding(says=LONG),), verdict="improvable")
        ),
    }
    for name, run in runs.items():
        page = browser.open(write(tmp_path / f"{name}.html", run), width=360)
        assert page.evaluate(WIDTH) == 360, name
        assert page.evaluate("document.querySelectorAll('script, img').length") == 0
        assert page.complaints == []


def test_dark_follows_the_reader_and_print_is_on_white(browser: Browser, sample: Path, tmp_path: Path):
    paper = "getComputedStyle(document.body).backgroundColor"
    assert browser.open(sample, dark=False).evaluate(paper) == "rgb(255, 255, 255)"
    dark = browser.open(sample, dark=True)
    assert dark.evaluate(paper) == "rgb(20, 22, 27)"
    dark.media("print")
    assert dark.evaluate(paper) == "rgb(255, 255, 255)"
    dark.pdf(tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")
