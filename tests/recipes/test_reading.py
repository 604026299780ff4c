"""From TOML to settings: what is merged, what is refused, and what the refusal says."""

from __future__ import annotations

from pathlib import Path

import pytest

from vivace.errors import UserError
from vivace.recipes.checking import check
from vivace.recipes.reading import as_toml, read_recipe, shipped_names, validated


@pytest.mark.parametrize("name", shipped_names())
def test_each_shipped_recipe_is_valid_and_shows_as_toml_that_reads_the_same(name: str, tmp_path: Path):
    recipe = read_recipe(name, ["data.train=generated"])
    check(recipe)
    (tmp_path / f"{name}.toml").write_text(as_toml(recipe))
    assert read_recipe(str(tmp_path / f"{name}.toml")) == recipe
    (tmp_path / f"{name}.json").write_text(recipe.to_json())
    assert read_recipe(str(tmp_path / f"{name}.json")) == recipe
    assert recipe.about
    assert recipe.source


def test_a_child_takes_what_it_does_not_say_from_its_parents(tmp_path: Path):
    (tmp_path / "base.toml").write_text('batch = 64\n[optim]\nlr = 0.5\nmomentum = 0.8\n[data]\ntrain = "generated"')
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "child.toml").write_text('extends = "../base.toml"\n[optim]\nlr = 0.25\nmomentum = "none"')
    recipe = read_recipe(str(tmp_path / "sub" / "child.toml"), ["data.image_size=32", "duration=3ep"])
    assert (recipe.batch, recipe.optim.lr, recipe.optim.momentum) == (64, 0.25, None)
    assert (recipe.data.train, recipe.data.image_size, str(recipe.duration)) == ("generated", 32, "3ep")
    assert recipe.name == "child"


def test_extends_in_a_circle_is_named(tmp_path: Path):
    (tmp_path / "a.toml").write_text('extends = "b.toml"')
    (tmp_path / "b.toml").write_text('extends = "a.toml"')
    with pytest.raises(UserError, match=r"circle: .*a.toml → .*b.toml → .*a.toml"):
        read_recipe(str(tmp_path / "a.toml"))


@pytest.mark.parametrize(
    ("change", "message", "hint"),
    [
        ("optim.lrr=1", "there is no setting optim.lrr", "did you mean optim.lr? allowed: name, lr"),
        ("optimizer=1", "there is no setting optimizer", "did you mean optim?"),
        ("phases=[{start='1ep', size=3}]", "there is no setting phases.0.size", "allowed: start, image_size, batch"),
        ("model.sizes.layer=1", "there is no setting model.sizes.layer", "did you mean model.sizes.layers?"),
        ("optim.lr=fast", "optim.lr: input should be a valid number", "--set optim.lr=…"),
        ("optim.lr=-1", "optim.lr: input should be greater than 0 (it is -1)", "optim.lr"),
        ("optim.name=adam", "optim.name: input should be 'adamw', 'lamb'", "optim.name"),
        ("duration=20", "duration: 20 has no unit; allowed: 37ep, 500ba, 1e6samples, 1e9tok, 20min", "duration"),
        ("schedule.warmup=20min", "schedule.warmup: '20min' is in the wrong unit; allowed: 37ep", "schedule.warmup"),
        ("validation.every=often", "validation.every: 'often' is not a duration; allowed: 37ep", "validation.every"),
        ("batch", "'batch' sets nothing", "--set optim.lr=0.5"),
        ("batch.size=3", "batch is a value", None),
    ],
)  # fmt: skip
def test_a_mistake_is_named_by_its_key_with_what_is_allowed(
    tmp_path: Path, change: str, message: str, hint: str | None
):
    (tmp_path / "r.toml").write_text("batch = 8")
    with pytest.raises(UserError) as caught:
        read_recipe(str(tmp_path / "r.toml"), [change])
    assert message in caught.value.message
    assert (hint or "") in (caught.value.hint or "")


def test_a_file_that_is_no_recipe(tmp_path: Path):
    (tmp_path / "r.toml").write_text("batch 8")
    with pytest.raises(UserError, match="is not TOML"):
        read_recipe(str(tmp_path / "r.toml"))
    with pytest.raises(UserError, match="No such file"):
        read_recipe(str(tmp_path / "absent.toml"))
    with pytest.raises(UserError) as caught:
        read_recipe("cifar10-sped")
    assert caught.value.hint == "did you mean cifar10-speed?"


BASE = {"data": {"train": "generated"}}
GPT = {"data": {"kind": "tokens", "train": "x"}, "model": {"name": "gpt"}}


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ({}, "data.train"),
        ({**BASE, "model": {"name": "gpt"}}, "model.name"),
        ({"data": {"train": "x.bin", "kind": "tokens"}}, "model.name"),
        ({"data": {"train": "x", "val_share": 0.1}}, "data.val_share"),
        ({**BASE, "duration": "1e9tok"}, "duration"),
        ({**BASE, "duration": "20min", "schedule": {"name": "cosine"}}, "schedule.over"),
        ({**BASE, "schedule": {"name": "cosine", "options": {"power": 2}}}, "schedule.options.power"),
        ({**BASE, "schedule": {"options": {"last": 0}}}, "schedule.options"),
        ({**BASE, "optim": {"name": "schedulefree"}, "schedule": {"name": "cosine"}}, "schedule.name"),
        ({**BASE, "optim": {"name": "adamw", "momentum": 0.9}}, "optim.momentum"),
        ({**BASE, "optim": {"name": "sgd", "betas": [0.9, 0.9]}}, "optim.betas"),
        ({**BASE, "optim": {"name": "lion", "eps": 1e-8}}, "optim.eps"),
        ({**BASE, "optim": {"name": "lamb"}, "speed": {"fused_optimizer": True}}, "speed.fused_optimizer"),
        ({**BASE, "loss": "mse", "augment": {"mixup": 0.2}}, "augment.mixup"),
        ({**GPT, "augment": {"flip": "random"}}, "augment.flip"),
        ({**BASE, "phases": [{"start": "2ep"}, {"start": "1ep"}]}, "phases"),
        ({**BASE, "batch": 10, "accumulate": 4}, "batch"),
        ({**BASE, "speed": {"sync_batch_norm": True}}, "speed.sync_batch_norm"),
        ({"data": {"train": "x", "val": "generated"}, "validation": {"rectangles": True}}, "validation.rectangles"),
    ],
)  # fmt: skip
def test_settings_that_contradict_each_other_are_refused_by_their_key(fields: dict, key: str):
    with pytest.raises(UserError) as caught:
        check(validated(fields, "r"))
    assert caught.value.message.startswith(f"{key}: ")
    assert caught.value.hint


def test_a_batch_must_split_over_the_processes():
    recipe = validated({**BASE, "batch": 12, "accumulate": 2}, "r")
    check(recipe, world=3)
    with pytest.raises(UserError, match="batch: 12 samples cannot be split into 2 passes of 4 processes"):
        check(recipe, world=4)
