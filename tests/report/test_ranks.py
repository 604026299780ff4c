"""Ranks beside one process: on the page of a tune, on that of a run, and in the terminal."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from report.made import EVIL, in_terminal, made_machine, made_proof

from vivace.protocol.answers import PracticeAnswer, PracticeState
from vivace.records.equality import Equality, EqualityVerdict
from vivace.records.proof import Interval, Scaled
from vivace.records.run import Run
from vivace.records.scale import GatheredLine, SplitFacts
from vivace.records.scale_check import MemoryOfMode, Prediction, ScaleCheck, Timed
from vivace.report.proof_view import proof_view
from vivace.report.run_folder import RunFolder, read_run
from vivace.report.run_page import run_page
from vivace.report.scale_check_view import scale_check_view

SAYS = "equal to one process at step 1 to 2e-07 (gradients); losses of 15 steps equal to 2e-07"
EQUALITY = Equality(
    command=("python", "train.py"), mode="ddp", ranks=4, verdict=EqualityVerdict.EQUAL, says=SAYS, gradient=2e-7,
    compared=("with one process: losses of 15 steps",), not_compared=("files byte by byte",),
)  # fmt: skip
FACTS = SplitFacts(
    ranks=4, split=("Net",), whole={"Critic": EVIL}, steps=20, sent_mib_per_step=1.2, gradient_mib=1.1, sent_early=30,
    gathered=(GatheredLine(by="sort", file="train.py", line=11, code="x.sort()", per_step=1.0, mib_per_step=0.5),),
)  # fmt: skip
SCALED = Scaled(
    ranks=4, mode="ddp", over_one=Interval(median=3.6, low=3.5, high=3.7), efficiency=0.9, pairs=2, equality=EQUALITY,
    with_practices=Interval(median=7.2, low=6.9, high=7.5), facts=FACTS,
)  # fmt: skip


def words(text: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", text).split())


def test_a_tunes_page_has_both_speedups_and_the_equality():
    text = run_page(RunFolder(Path("runs/train-001"), proof=made_proof(scaled=SCALED)))
    assert '<section id="ranks">' in text
    assert EVIL not in text
    seen = words(text)
    assert SAYS in seen
    assert "3.60× (3.50 to 3.70)" in seen
    assert "7.20× (6.90 to 7.50)" in seen
    assert "90 % of 4×" in seen
    assert "sort at train.py:11" in seen


def test_a_tunes_terminal_says_the_same():
    seen = " ".join(in_terminal(proof_view(made_proof(scaled=SCALED)), width=200).split())
    assert SAYS in seen
    assert "3.60× (3.50–3.70) of one process without practices (2 pairs): 90 % of 4×" in seen
    assert "7.20× (6.90–7.50) of one process with the practices" in seen


def test_a_runs_page_has_the_proof(tmp_path: Path):
    told = {"ddp": PracticeAnswer(PracticeState.APPLIED, "Net split over 4 ranks")}
    run = Run(
        command=("python", EVIL), practices=("ddp",), told=told, launcher="local", state="completed", exit_code=0,
        folder=str(tmp_path), ranks=4, equality=EQUALITY, scale=FACTS,
    )  # fmt: skip
    run.save(tmp_path / "run.json")
    text = run_page(read_run(tmp_path))
    assert EVIL not in text
    assert SAYS in words(text)
    assert "applied: Net split over 4 ranks" in words(text)
    assert "Not compared: files byte by byte" in words(text)


@pytest.mark.parametrize("predicted", [True, False])
def test_a_check_calls_what_is_predicted_so(predicted: bool):
    prediction = Prediction(
        ranks=16, network="cluster, 4 nodes of 4", exchange_ms=3.0, exposed_ms=1.0, step_ms=20.0, efficiency=0.8
    )
    check = ScaleCheck(
        command=("python", "train.py"), mode="ddp", ranks=16, one=Timed(ranks=1, step_ms=256.0),
        split=Timed(ranks=2, step_ms=140.0, exposed_communication_ms=5.0), speedup=1.83, efficiency=0.914, facts=FACTS,
        equality=EQUALITY, memory=(MemoryOfMode(mode="ddp", parameters_gib=1, gradients_gib=1, states_gib=2),),
        prediction=prediction if predicted else None, why_not_predicted=None if predicted else "this run was on a CPU",
        machine=made_machine(),
    )  # fmt: skip
    seen = " ".join(in_terminal(scale_check_view(check), width=200).split())
    assert "1.83× on 2 ranks with ddp (91 % of 2×; measured, one run each)" in seen
    assert "Critic runs whole on every rank" in seen
    assert "a ring moves 1.1 MiB a rank and step; handed to exchanges: 1.2 MiB a step" in seen
    if predicted:
        assert (
            "Predicted for 16 ranks on cluster, 4 nodes of 4: exchange of gradients 3 ms a step, 1 ms of it exposed"
            in seen
        )
    else:
        assert "16 ranks: not predicted (this run was on a CPU)" in seen
    assert ScaleCheck.from_json(check.to_json()) == check
