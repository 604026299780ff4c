"""A proof in a terminal: commands that can be copied, and words for harm that say what is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from report.made import in_terminal, made_finding, made_proof, made_trial

from vivace.records.proof import Gain, Harm, HarmTest, Rejected, Risk, Varied
from vivace.report.proof_view import proof_view
from vivace.report.run_folder import RunFolder
from vivace.report.run_page import run_page

LONG = "vivace run --with bf16 -- python " + " ".join(f"--option-{n} value" for n in range(20))
FOLDER = Path("runs/train-001")
GREEN, YELLOW, RED = "\x1b[32m", "\x1b[33m", "\x1b[31m"


def test_no_line_to_copy_is_broken_at_the_width_of_the_terminal():
    by_hand = "\n".join("x" * 100 + f" {n}" for n in range(2))
    note = f"not tried, not enough time: compile; continue with: {LONG}"
    gain = Gain(practice="bf16", risk=Risk.ROUNDING, by_hand=by_hand)
    proof = made_proof(practices=(gain,), proposed=(made_finding(by_hand=LONG),), run_with=LONG, notes=(note,))
    lines = in_terminal(proof_view(proof)).splitlines()
    assert {f"  {LONG}", f"      {LONG}", note} <= set(lines)
    assert [f"  {line}" for line in by_hand.splitlines()] == lines[-2:]


@pytest.mark.parametrize(
    ("verdict", "colour", "text", "title"),
    [
        ("not comparable", YELLOW, "harm: not checked (why)", "Harm to the training: not checked"),
        ("outside the band", RED, "harm: ", "Harm to the training"),
        ("same losses", GREEN, "no harm seen: same losses. ", "No harm seen"),
    ],
)
def test_what_is_known_about_harm_is_said_in_its_colour(verdict: Any, colour: str, text: str, title: str):
    proof = made_proof(harm=Harm(verdict=verdict, says="why"))
    assert f"{colour}{text}\x1b[0m" in in_terminal(proof_view(proof), colours=True)
    assert f"<h2>{title}</h2>" in run_page(RunFolder(FOLDER, proof=proof))


def test_the_page_does_not_call_losses_that_were_not_compared_a_result():
    harm = Harm(verdict="not comparable", says="the script shows too few losses to compare")
    text = run_page(RunFolder(FOLDER, proof=made_proof(harm=harm)))
    assert "Harm was not checked: the script shows too few losses to compare." in text
    assert '<span class="verdict not">not checked</span>' in text
    assert "No harm" not in text


@pytest.mark.parametrize(
    ("fields", "terminal", "title"),
    [
        (
            {"harm": Harm(verdict="outside the band", says="so")},
            "the faster set changes the training",
            "the losses changed",
        ),
        (
            {"ended": "006-round0-tuned: crash"},
            "a run of the proof failed (006-round0-tuned: crash)",
            "Faster, but not proved",
        ),
        ({}, "No practice made this job faster", "Nothing tried beats the noise"),
        (
            {
                "rejected": (
                    Rejected(practice="bf16", reason="could not be judged", why="so", ratio=0.06, noise=12.4),
                ),
                "unchanged": Varied(low=890.0, high=11070.0, runs=4),
            },
            "Could not be judged on this machine: the unchanged job itself varied from 890.0 to 11,070 samples/s.",
            "Could not be judged on this machine",
        ),
        (
            {
                "rejected": (
                    Rejected(practice="bf16", reason="not proved", why="so"),
                    Rejected(practice="tf32", reason="no gain", why="0.70× (slower)"),
                ),
                "unchanged": Varied(low=10.0, high=20.0, runs=4),
            },
            "1 of 2 practices could not be judged on this machine: the unchanged job itself varied from 10.00 to 20.00 "
            "samples/s; the other 1 brought nothing.",
            "Could not be judged on this machine",
        ),
        (
            {
                "rejected": (
                    Rejected(practice="bf16", reason="not proved", why="so"),
                    Rejected(practice="tf32", reason="could not be judged", why="so"),
                ),
                "unchanged": Varied(low=10.0, high=11.0, runs=4),
            },
            "No gain could be proved: the paired runs differ too much to be sure of what seemed faster.",
            "No gain could be proved",
        ),
    ],
)
def test_where_nothing_is_recommended_the_first_line_says_why(fields: dict[str, Any], terminal: str, title: str):
    proof = made_proof(**{"practices": (), "after": None, "harm": None, **fields})
    assert terminal in " ".join(in_terminal(proof_view(proof)).split())
    assert title in run_page(RunFolder(FOLDER, proof=proof))


def test_a_hidden_value_is_asked_for_and_nothing_is_where_none_is():
    hidden = made_proof(run_with="vivace run --with bf16 -- python train.py --api-key '***'")
    asked = "  vivace run --with bf16 -- python train.py --api-key '***'\n  put your own value for ***\n"
    assert asked in in_terminal(proof_view(hidden))
    assert "Put your own value for ***." in run_page(RunFolder(FOLDER, proof=hidden))
    plain = made_proof()
    assert "your own value" not in in_terminal(proof_view(plain))
    assert "your own value" not in run_page(RunFolder(FOLDER, proof=plain))


def test_where_nothing_was_kept_there_is_no_after():
    harm = Harm(verdict="inside the band", moved=0.01, band=0.05, steps=4, rounds=2, says="so")
    rejected = (
        Rejected(practice="bf16", why="not faster in the paired runs"),
        Rejected(practice="tf32", why="not asked"),
    )
    proof = made_proof(practices=(), after=None, payback=None, run_with="", harm=harm, rejected=rejected)
    trials = (made_trial("a", (), 100.0), made_trial("b", ("bf16",), 80.0))
    shown = in_terminal(proof_view(proof))
    assert "as it is" in shown
    assert [word for word in ("before", "after", "harm") if word in shown] == []
    text = run_page(RunFolder(FOLDER, proof=proof, trials=trials))
    assert "<h2>Losses</h2>" in text
    assert "band over 2 runs" in text
    absent = ("Both bars", "paired runs.", "after: 0 runs", "No harm", "inside the band", "tuned moved by")
    assert [word for word in absent if word in text] == []
    assert '<td class="number" data-name="speed">1.25×</td>' in text
    assert text.count('<td class="number" data-name="speed">not measured</td>') == 1


def test_harm_that_is_why_nothing_was_kept_is_told():
    proof = made_proof(practices=(), after=None, harm=Harm(verdict="outside the band", says="a loss became NaN"))
    assert "harm: a loss became NaN" in in_terminal(proof_view(proof))
    assert "<h2>Harm to the training</h2>" in run_page(RunFolder(FOLDER, proof=proof))


def test_a_verdict_of_no_harm_says_over_how_many_steps_by_which_tests_and_what_it_cannot_see():
    tests = (
        HarmTest(kind="first step", outcome="passed", steps=4, pairs=3, says="gradients agree to 3e-07"),
        HarmTest(kind="first step", outcome="passed", steps=4, pairs=1, of=("channels_last",), says="so"),
        HarmTest(kind="seed band", outcome="passed", steps=40, pairs=3, says="losses move by 0.01"),
    )
    harm = Harm(
        verdict="inside the band", says="so", tests=tests, steps=40, cannot_see="effects that show after 40 steps"
    )
    proof = made_proof(harm=harm)
    shown = in_terminal(proof_view(proof))
    assert "no harm seen in 40 steps: inside the band" in shown
    assert "not seen: effects that show after 40 steps" in shown
    page = run_page(RunFolder(FOLDER, proof=proof))
    assert "<h2>No harm seen in 40 steps</h2>" in page
    assert '<td class="short">first step</td><td>channels_last</td><td class="short">passed</td>' in page
    assert "Not seen: effects that show after 40 steps." in page
    assert Harm.model_validate_json(harm.model_dump_json()) == harm
