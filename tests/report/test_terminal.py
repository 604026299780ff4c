"""A measurement in a terminal and on its page: which figure is the mean, and which the typical step."""

from __future__ import annotations

from pathlib import Path

from report.made import in_terminal, made_measurement, made_proof, made_trial

from vivace.launch.achieved import of_measurement
from vivace.records.finding import Findings
from vivace.records.measurement import Spread, StepsVary
from vivace.records.proof import Side
from vivace.report.climb import climb
from vivace.report.findings_view import findings_view
from vivace.report.run_folder import RunFolder
from vivace.report.run_page import run_page
from vivace.report.terminal import measurement_view

STALLING = Spread(median=7.7, p10=7.1, p90=8.3, mean=17.5)
VARY = StepsVary(shortest_ms=3.1, longest_ms=137.0, p10_ms=7.1, p90_ms=8.3, median_ms=7.7, mean_ms=17.5, phase="loader")
SENTENCE = "Steps vary from 3.10 to 137 ms (10–90 %: 7.10–8.30), most of it in loader wait: the median says little"
RECORD = made_measurement(step_ms=17.5).model_copy(update={"step_ms": STALLING, "steps_vary": VARY})


def test_the_headline_is_the_mean_and_the_typical_step_stands_beside_it():
    shown = in_terminal(measurement_view(RECORD, "runs/x"), width=300)
    assert "17.50 ms per step  (mean of 4 steps after 2 of warm-up; " in shown
    assert "\ntypical step: 7.70 ms  (median; 10–90 %: 7.10–8.30)\n" in shown
    page = run_page(RunFolder(Path("runs/x"), measurement=RECORD))
    assert "<h1>17.5 ms per step</h1>" in page
    assert "Mean of 4 steps after 2 of warm-up. Typical step (median): 7.70 ms; 10 to 90 %: 7.10 ms to 8.30 ms." in page


def test_steps_that_vary_are_warned_of_in_the_terminal_on_the_page_and_by_check():
    findings = Findings(measurement="m.json", findings=(), verdict="tuned")
    assert SENTENCE in " ".join(in_terminal(measurement_view(RECORD, "runs/x")).split())
    assert SENTENCE in " ".join(in_terminal(findings_view(findings, RECORD)).split())
    for folder in (
        RunFolder(Path("runs/x"), measurement=RECORD),
        RunFolder(Path("runs/x"), measurement=RECORD, findings=findings),
    ):
        assert run_page(folder).count(f'<p class="warning">{SENTENCE}') == 1
    steady = RECORD.model_copy(update={"steps_vary": None})
    assert "says little" not in in_terminal(measurement_view(steady, "runs/x"))


def test_what_is_compared_is_the_mean():
    assert of_measurement(RECORD, "x").step_ms == 17.5
    trials = [made_trial("a", (), measurement=RECORD), made_trial("b", ("bf16",), 7.0)]
    (rung,) = climb(trials, ["bf16"])
    assert (rung.from_ms, rung.to_ms) == (17.5, 7.0)
    proof = made_proof(
        before=Side(step_ms=STALLING), after=Side(step_ms=Spread(median=7.0, p10=7.0, p90=7.0, mean=8.1))
    )
    page = run_page(RunFolder(Path("runs/x"), proof=proof))
    assert "mean step" in page
    assert "before 17.50" in page
    assert "before 7.7" not in page
