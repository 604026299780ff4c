"""``vivace hpo … RECIPE``: the settings of a recipe, or of a model, are the parameters."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Done

from vivace.hpo.template import Template
from vivace.hpo.trained import is_training, training_command
from vivace.hpo.written import read_space

RECIPE = """
extends = "gpt-char"
duration = "2ba"
[model]
name = "gpt"
sizes = { layers = 1, hidden = 16, heads = 2, vocab = 256 }
[data]
train = "text.txt"
seq_len = 8
[schedule]
warmup = "1ba"
[validation]
every = "2ba"
batch = 8
"""


@pytest.mark.slow
def test_a_recipe_is_searched_by_its_settings(tmp_path: Path, vivace: Callable[..., Done]) -> None:
    (tmp_path / "mine.toml").write_text(RECIPE)
    (tmp_path / "text.txt").write_text("to be or not to be " * 50)
    done = vivace(
        "hpo", "--param", "optim.lr=log(1e-4,1)", "--metric", "min val_loss", "--default", "optim.lr=0.01",
        "--trials", "1", "--confirm-seeds", "0", "--json", "mine.toml", "--set", "batch=4",
    )  # fmt: skip
    assert done.code == 0, done.err
    record = json.loads(done.out)
    assert [(one["state"], one["values"]) for one in record["trials"]] == [("complete", {"optim.lr": "0.01"})]
    assert " -m vivace train mine.toml --set batch=4 --set optim.lr=0.01 --set seed=0" in record["best_command"]
    (used,) = (done.folder / "trials" / "0000").rglob("recipe.json")
    assert json.loads(used.read_text())["optim"]["lr"] == 0.01


@pytest.mark.parametrize(("words", "says"), [
    (("--param", "optim.lrr=log(1e-4,1)", "--metric", "min val_loss", "cifar10"), "there is no setting optim.lrr"),
    (("--param", "optim.rate=log(1e-4,1)", "--metric", "min loss", "gpt"), "there is no setting 'optim.rate'"),
    (("--param", "optim..lr=log(1e-4,1)", "--metric", "min loss", "gpt"), "cannot be a parameter's name"),
])  # fmt: skip
def test_what_is_no_setting_is_refused_before_the_first_trial(
    vivace_here: Callable[..., Done], words: tuple[str, ...], says: str
) -> None:
    assert says in vivace_here("hpo", *words).err


def test_names_with_dots_stand_in_commands_and_files(tmp_path: Path) -> None:
    file = tmp_path / "space.toml"
    file.write_text('[param]\noptim.lr = "log(1e-4,1)"\nbatch = [16, 32]\n[default]\noptim.lr = 0.1\nbatch = 32\n')
    written = read_space((), file, ())
    assert written.space.names == ("optim.lr", "batch")
    assert written.defaults == {"optim.lr": 0.1, "batch": "32"}
    command = training_command(["cifar10"], written.space.names)
    filled = Template.read(command, written.space.names).filled(
        {"optim.lr": "0.1", "batch": "32", "seed": "7", "folder": "here"}
    )
    assert filled[3:] == (
        "train", "cifar10", "--set", "optim.lr=0.1", "--set", "batch=32", "--set", "seed=7", "--output", "here",
    )  # fmt: skip


def test_a_program_is_no_recipe() -> None:
    assert [is_training([word]) for word in ("gpt", "cifar10", "python", "train.py", "no-such.toml")] == [
        True, True, False, False, False,
    ]  # fmt: skip
