"""Scripts without an optimizer object, measured in real processes: steps, batches and losses that follow from them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

OPTIONS = ("--steps", "6", "--warmup", "2", "--no-profile")
FLOPS_PER_SAMPLE = 384 + 384 + 128  # of make_model(): see test_measure_scripts.py

BY_HAND = "parameters are updated by hand: steps are counted by backward passes"
IN_HOOKS = "optimizers step in hooks of the backward pass"
# script's arguments → backward passes over micro-batches and samples in a step, forwards of make_model(), and the note
SCRIPTS: dict[str, tuple[int, int, int, str]] = {
    "plain": (1, 32, 1, BY_HAND),
    "loader": (1, 32, 1, BY_HAND),
    "accumulation": (4, 128, 4, BY_HAND),
    "gan 200 1": (2, 32, 3, BY_HAND),
    "gan 200 5": (6, 32, 7, BY_HAND),
    "sam": (1, 32, 2, BY_HAND),
    "functional": (1, 32, 1, BY_HAND),
    "functional_in_place": (1, 32, 1, BY_HAND),
    "hooks": (1, 32, 1, IN_HOOKS),
}


@pytest.mark.parametrize("script", SCRIPTS)
def test_steps_are_found_without_an_optimizer(measure: Callable, script: str):
    micro_batches, samples, forwards, note = SCRIPTS[script]
    done = measure("by_hand.py", *script.split(), options=OPTIONS)
    record = done.record
    assert (done.code, record["status"], record["steps"], record["optimizers"]) == (0, "complete", 6, 0)
    assert (record["micro_batches"], record["batch_size"]) == (micro_batches, samples)
    assert record["flops"]["model"] == forwards * 32 * FLOPS_PER_SAMPLE
    assert any(line.startswith(note) for line in record["notes"])
    check_losses(done.err, record)
    check_phases(record, update_is_seen=script != "hooks")


def check_losses(output: str, record: dict[str, Any]) -> None:
    """Also those of the first steps, of which only later was known that they were steps."""
    printed = [float(loss) for loss in re.findall(r"loss (\S+)", output)]
    if printed:
        first = record["warmup_steps"]
        assert list(record["losses"]) == printed[first : first + 6]
        assert list(record["trajectory"][: first + 6]) == printed[: first + 6]


def check_phases(record: dict[str, Any], update_is_seen: bool) -> None:
    median = {name: phase["median"] for name, phase in record["phases_ms"].items()}
    assert median["forward"] > 0
    assert median["backward"] > 0
    assert (median["optimizer"] > 0) == update_is_seen


def test_without_a_module_steps_and_losses_are_right_and_the_rest_is_said(measure: Callable):
    done = measure("by_hand.py", "tensors", options=OPTIONS)
    record = done.record
    assert (record["status"], record["steps"], record["batch_size"]) == ("complete", 6, None)
    assert record["phases_ms"]["forward"]["median"] == record["phases_ms"]["optimizer"]["median"] == 0
    assert any("no module is called" in note for note in record["notes"])
    check_losses(done.err, record)


def test_an_optimizer_that_steps_late_is_waited_for(measure: Callable):
    record = measure("by_hand.py", "late", options=("--steps", "2", "--warmup", "2", "--no-profile")).record
    assert (record["status"], record["micro_batches"], record["optimizers"]) == ("complete", 64, 1)
    assert record["notes"] == []


def test_an_optimizer_that_comes_later_tells_the_steps(measure: Callable):
    record = measure("by_hand.py", "then_an_optimizer", options=OPTIONS).record
    assert (record["status"], record["micro_batches"], record["optimizers"]) == ("complete", 2, 1)
    assert record["flops"]["model"] == 2 * 32 * FLOPS_PER_SAMPLE
    assert record["notes"] == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("irregular", "in no order of backward passes that repeats"),
        ("never", "no parameter changed after any of 200 backward passes"),
        ("plain 6", "in only 6 backward passes: at least 9 are needed"),
    ],
)
def test_what_cannot_be_seen_is_said(measure: Callable, arguments: str, sentence: str):
    done = measure("by_hand.py", *arguments.split(), options=OPTIONS)
    assert done.code == 2
    assert sentence in done.err
    assert done.record["status"] == "nothing"
