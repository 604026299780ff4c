"""Spaces as people write them: every kind is read, written back the same, and mistakes say what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.errors import UserError
from vivace.hpo.space import Choice, Real, Space, Whole
from vivace.hpo.written import read_parameter, read_space


@pytest.mark.parametrize(
    ("text", "parameter"),
    [
        ("lr=log(1e-4,1)", Real("lr", 1e-4, 1.0, log=True)),
        ("dropout = uniform( 0 , 0.5 )", Real("dropout", 0.0, 0.5)),
        ("depth=int(2,8)", Whole("depth", 2, 8)),
        ("width=int(16,130,16)", Whole("width", 16, 128, 16)),  # 130 is no step from 16
        ("batch=logint(1,1024)", Whole("batch", 1, 1024, log=True)),
        ("wd=choice(0,1e-4,5e-4)", Choice("wd", ("0", "1e-4", "5e-4"))),
        ('betas=choice("0.9,0.95",other)', Choice("betas", ("0.9,0.95", "other"))),
    ],
)
def test_every_kind_is_read_and_written_back(text: str, parameter: object) -> None:
    found = read_parameter(text)
    assert found == parameter
    assert read_parameter(f"{found.name}={found}") == found


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("lr", "not NAME=RANGE"),
        ("lr=0.1", "not a range"),
        ("lr=lognormal(0,1)", "not a range"),
        ("lr=log(0,1)", "must begin above 0"),
        ("lr=log(1,0.1)", "1 is not below 0.1"),
        ("lr=log(1e-4)", "must be 2 numbers"),
        ("lr=uniform(0,inf)", "must be 2 numbers"),
        ("n=int(1.5,3)", "whole numbers"),
        ("n=int(1,4,9)", "a step of 9"),
        ("opt=choice(adam)", "two options"),
        ("opt=choice(adam,adam)", "given twice"),
        ("my-lr=log(1e-4,1)", "cannot be a parameter's name"),
        ("seed=int(1,9)", "is taken"),
    ],
)
def test_a_mistake_says_what_is_allowed(text: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        read_parameter(text)


def test_a_file_adds_to_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "space.toml"
    file.write_text('[param]\nlr = "log(1e-4, 1)"\nnesterov = [true, false]\n[default]\nlr = 0.1\nnesterov = true\n')
    written = read_space(["wd=choice(0,1e-4)"], file, ["wd=0.0001,lr=0.2"])
    assert written.space.names == ("lr", "nesterov", "wd")
    assert written.defaults == {"lr": 0.2, "nesterov": "true", "wd": "1e-4"}  # as the option is written
    with pytest.raises(UserError, match="given twice"):
        read_space(["lr=log(1,2)"], file, [])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("lr = 1", "'lr' in .* is not known"),
        ("[param]\nlr = 3", "must be a text or a list"),
        ("[default]\nlr = 3", "no table"),
        ("[param", "is not TOML"),
    ],
)
def test_a_wrong_file_is_one_sentence(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "space.toml"
    file.write_text(text)
    with pytest.raises(UserError, match=says):
        read_space([], file, [])


@pytest.mark.parametrize(
    ("default", "says"),
    [
        ("lr=2", "outside of log"),
        ("lr=x", "not a number"),
        ("mom=1", "no such parameter"),
        ("lr=0.1", "nothing about wd"),
    ],
)
def test_defaults_are_values_of_the_space(default: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        read_space(["lr=log(1e-4,1)", "wd=choice(0,1)"], None, [default])


def test_the_grid_has_all_values_of_finite_parameters_and_five_of_others() -> None:
    space = Space((Real("lr", 1e-4, 1.0, log=True), Choice("opt", ("a", "b")), Whole("n", 1, 3)))
    grid = list(space.grid())
    assert len(grid) == space.grid_size == 5 * 2 * 3
    assert {values["lr"] for values in grid} == {0.0001, 0.001, 0.01, 0.1, 1.0}
    assert space.size is None
    finite = Space(space.parameters[1:])
    assert finite.size == 6
    assert len({tuple(values.values()) for values in finite.every()}) == 6


@given(low=st.floats(1e-12, 1e6), factor=st.floats(1.001, 1e9), log=st.booleans())
def test_grid_points_and_middle_lie_inside(low: float, factor: float, log: bool) -> None:
    parameter = Real("x", low, low * factor, log)
    for value in (parameter.middle, *parameter.grid()):
        assert parameter.read(parameter.text(value)) == value


@given(low=st.integers(1, 1000), more=st.integers(1, 1000), step=st.integers(1, 50), log=st.booleans())
def test_whole_grid_points_and_middle_are_values(low: int, more: int, step: int, log: bool) -> None:
    step = 1 if log else min(step, more)
    parameter = read_parameter(f"x={'logint' if log else 'int'}({low},{low + more}{'' if log else f',{step}'})")
    assert isinstance(parameter, Whole)
    assert {parameter.middle, *parameter.grid()} <= set(parameter.values)
