"""``vivace train RECIPE`` and ``vivace recipe`` as commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from recipes.small import IMAGES, MODELS


@pytest.fixture
def recipe(tmp_path: Path) -> str:
    (tmp_path / "my.toml").write_text(IMAGES)
    return "my.toml"


def test_a_recipe_trains_in_a_process_of_its_own(vivace, recipe: str):
    done = vivace("train", recipe, "--steps", "3", "--set", "optim.lr=0.01")
    assert done.code == 0, done.err
    assert "step 3/3" in done.out
    assert json.loads((done.folder / "trained.json").read_text())["steps"] == 3
    assert json.loads((done.folder / "recipe.json").read_text())["optim"]["lr"] == 0.01


def test_two_replicas_are_started(vivace, recipe: str):
    done = vivace("train", recipe, "--ranks", "2", "--steps", "2")
    assert done.code == 0, done.err
    assert json.loads((done.folder / "trained.json").read_text())["processes"] == 2


def test_errors_have_exit_code_2_and_a_hint(vivace_here, recipe: str):
    done = vivace_here("train", recipe, "--set", "optim.lrr=1")
    assert done.code == 2
    assert "there is no setting optim.lrr" in done.err
    assert "did you mean optim.lr?" in done.err
    done = vivace_here("train", recipe, "--layout", "tp2")
    assert f"it has no model.name = {MODELS}:small" in done.err
    done = vivace_here("train", "resnet50-imagenet")
    assert "data.train: this recipe needs data" in done.err


def test_list_show_and_check(vivace_here, recipe: str):
    listed = vivace_here("recipe", "list", "--json").record
    assert {"cifar10-speed", "cifar10-large-batch", "resnet50-imagenet", "gpt2-124m", "gpt-char"} <= set(
        listed["runnable"]
    )
    assert len(listed["published"]) == 10
    shown = vivace_here("recipe", "show", "cifar10-large-batch").out
    assert 'optim.name = "lamb"' in shown
    assert "data.image_size = 32" in shown  # from the recipe that it extends
    assert vivace_here("recipe", "check", recipe).out == "my.toml: every setting is valid\n"
    refused = vivace_here("recipe", "check", recipe, "--set", "duration=1e9tok")
    assert refused.code == 2
    assert "duration: 1e9tok counts tokens" in refused.err
    rows = vivace_here("recipe", "check", "--json").record
    assert sum(row["verdict"] == "agrees" for row in rows) == 8
    assert "as printed: 36.04 min" in vivace_here("recipe", "check", "mlperf-dlrm").out
    assert "did you mean mlperf-dlrm?" in vivace_here("recipe", "show", "mlperf-dlr").err


def test_settings_are_listed(vivace_here):
    listed = vivace_here("train", "cifar10", "--settings").out
    assert "optim.clip_norm" in listed
    assert "schedule.warmup" in listed
