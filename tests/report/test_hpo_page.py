"""The record of a search in a terminal and as a page."""

from __future__ import annotations

from pathlib import Path

import pytest
from report.browser import Browser, needs_chromium
from report.made import EVIL
from report.made_hpo import made_hpo
from rich.console import Console

from vivace.records.hpo import Hpo, HpoTrial
from vivace.report.hpo_view import eta_s, hpo_live, hpo_view
from vivace.report.run_folder import RunFolder
from vivace.report.run_page import run_page


def _printed(view: object) -> str:
    console = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(view)
    return console.export_text()


def test_the_live_table_tells_how_far_it_is_and_what_is_best() -> None:
    record = made_hpo(budget="2 h", budget_used=0.25)
    text = _printed(hpo_live(record))
    assert "3 of 10 trials, 1 pruned, 1 failed" in text
    assert "25 % of 2 h" in text
    assert "best so far: val_loss 1.000 (lr=0.1, opt=sgd)" in text


def test_the_time_that_is_left_follows_from_trials_and_budget() -> None:
    assert eta_s(made_hpo()) == pytest.approx((2.0 + 1.0 + 0.5) / 3 * 7 / 2)
    assert eta_s(made_hpo(budget_used=0.5)) == pytest.approx(2.0)  # 2 s of the clock were half of it
    assert eta_s(made_hpo(trials=())) is None


def test_the_answer_has_the_command_to_copy() -> None:
    text = _printed(hpo_view(made_hpo(best=(1.0, 1.1, 1.0), own=(2.0, 2.3, 2.2))))
    assert "better than your defaults by " in text
    assert "python train.py --lr 0.1" in text
    assert "importance: lr 80 %, opt 20 %" in text


@needs_chromium
def test_the_page_is_whole_in_a_browser_and_fits_a_phone(tmp_path: Path) -> None:
    many = tuple(
        HpoTrial(
            number=n,
            state="complete",
            values={"lr": f"{0.01 * (n + 1)}", "opt": EVIL if n % 2 else "sgd"},
            metric=9.0 / (n + 1),
        )
        for n in range(30)
    )
    record = made_hpo(best=(1.0, 1.1), own=(2.0, 2.3), trials=many, best_command=f"python {EVIL}")
    path = tmp_path / "report.html"
    path.write_text(run_page(RunFolder(tmp_path, hpo=record)))
    with Browser() as browser:
        page = browser.open(path, width=390)
        sections = "[...document.querySelectorAll('section')].map(section => section.id)"
        wanted = ["headline", "recipe", "confirmation", "history", "importance", "slices", "parallel", "trials"]
        assert page.evaluate(sections) == wanted
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert page.evaluate("document.querySelectorAll('#history circle').length") == 30


def test_a_record_goes_to_json_and_back(tmp_path: Path) -> None:
    record = made_hpo(best=(1.0, 1.1), own=(2.0, 2.3))
    assert Hpo.load(record.save(tmp_path / "hpo.json")) == record
