"""Placeholders in the command: filled anywhere in a word, never half, and never silently left out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.errors import UserError
from vivace.hpo.template import Template


def test_values_go_anywhere_in_a_word_and_double_braces_are_braces() -> None:
    words = ["python", "train.py", "--lr={lr}", "optim.wd={wd}/x{lr}", '{{"a": {lr}}}', "--seed", "{seed}"]
    filled = Template.read(words, ["lr", "wd"]).filled({"lr": "0.1", "wd": "0", "seed": "3"})
    assert filled == ("python", "train.py", "--lr=0.1", "optim.wd=0/x0.1", '{"a": 0.1}', "--seed", "3")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--lr", "{lr}", "{momentum}"], r"\{momentum\} in the command has no parameter"),
        (["--lr", "0.1"], "the parameter lr is nowhere in the command"),
        (["--lr", "{lr}", '{"a": 1}'], "is not a placeholder"),
        (["--lr", "{lr"], "is not a placeholder"),
    ],
)
def test_holes_and_parameters_must_match(words: list[str], says: str) -> None:
    with pytest.raises(UserError, match=says):
        Template.read(words, ["lr"])


@given(st.lists(st.text(max_size=12), max_size=5))
def test_any_command_survives_when_its_braces_are_doubled(words: list[str]) -> None:
    escaped = [word.replace("{", "{{").replace("}", "}}") for word in words]
    assert Template.read([*escaped, "{x}"], ["x"]).filled({"x": "1"}) == (*words, "1")
