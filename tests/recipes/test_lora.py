"""LoRA: the base stays, the merged model computes the same, and a stopped training goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from recipes.small import TOKENS, losses, recipe_of, trained

from vivace import distributed
from vivace.checkpoint.safetensors import load_safetensors, save_safetensors
from vivace.errors import UserError
from vivace.recipes import training as parts
from vivace.recipes.checking import check
from vivace.recipes.loop import MERGED, export
from vivace.recipes.models import build_model
from vivace.recipes.on_layouts import layout_settings
from vivace.recipes.recipe import Recipe
from vivace.train.models.lora import LoraLinear

SIZES = "model.sizes={layers=2, hidden=16, heads=2, vocab=32, biases=true, tied=true}"
OTHER_DATA = "seed=5"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints of a trained model."""
    folder = tmp_path_factory.mktemp("base")
    trained(folder, TOKENS, SIZES, f"checkpoints.folder={folder / 'saved'}")
    return folder / "saved"


def lora(folder: Path, base: Path, *changes: str) -> Recipe:
    return recipe_of(folder, TOKENS, SIZES, OTHER_DATA, f"model.weights={base}", "model.lora_rank=2", *changes)


def tokens() -> torch.Tensor:
    return torch.randint(32, (4, 8), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("changes", [(), ("optim.ema=0.5",)])
def test_the_base_stays_and_the_merged_model_computes_the_same(tmp_path: Path, base: Path, changes: tuple[str, ...]):
    cpu = torch.device("cpu")
    plain = build_model(recipe_of(tmp_path, TOKENS, SIZES, f"model.weights={base}"), None, cpu)
    recipe = lora(tmp_path, base, *changes)
    training = parts.build(recipe, None, distributed.world({}))
    assert torch.equal(training.model(tokens()), plain(tokens()))  # additions begin at zero
    before = {name: each.clone() for name, each in plain.state_dict().items()}
    for batch, _ in training.batches():
        training.take_step(batch)
    state = training.model.state_dict()
    assert all(torch.equal(state[name], value) for name, value in before.items())
    layers = [each for each in training.model.modules() if isinstance(each, LoraLinear)]
    assert len(layers) == 2 * 6
    assert all(layer.lora_up.abs().max() > 0 for layer in layers)

    export(training, tmp_path)
    with training.average.shown() if training.average is not None else torch.no_grad():
        wanted = training.model(tokens()).detach()
    again = f"model.weights={tmp_path / MERGED}"
    merged = build_model(recipe_of(tmp_path, TOKENS, SIZES, again), None, cpu)
    torch.testing.assert_close(merged(tokens()), wanted)
    assert not torch.allclose(wanted, plain(tokens()), atol=1e-3)
    assert set(load_safetensors(tmp_path / MERGED)) == set(before)


def test_only_additions_have_optimizer_states(tmp_path: Path, base: Path):
    training = parts.build(lora(tmp_path, base), None, distributed.world({}))
    trained_here = sum(each.numel() for group in training.optimizer.param_groups for each in group["params"])
    # query, key, value, out: 2 x (16 + 16) each; up and down of the feed-forward block: 2 x (16 + 64) each
    assert trained_here == 2 * (4 * 2 * 32 + 2 * 2 * 80)


def test_a_stopped_training_goes_on_bit_for_bit(tmp_path: Path, base: Path):
    changes = (SIZES, OTHER_DATA, f"model.weights={base}", "model.lora_rank=2", "checkpoints.every=100ba")
    trained(tmp_path / "whole", TOKENS, *changes)
    folder = f"checkpoints.folder={tmp_path / 'saved'}"
    trained(tmp_path / "parts", TOKENS, *changes, folder, "duration=3ba")
    trained(tmp_path / "parts", TOKENS, *changes, folder)
    assert losses(tmp_path / "parts") == losses(tmp_path / "whole")
    whole, again = (load_safetensors(tmp_path / name / MERGED) for name in ("whole", "parts"))
    assert all(torch.equal(whole[name], again[name]) for name in whole)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (("model.lora_rank=2",), "there is no trained model to add to"),
        (("model.lora_rank=2", "model.weights=x", "model.name=hf:gpt2"), "the layers of hf:gpt2 are not known"),
        (("model.lora_rank=2", "model.weights=x", "model.mup_base_width=16"), "says nothing about its matrices"),
    ],
)
def test_what_has_no_lora_is_refused(tmp_path: Path, changes: tuple[str, ...], message: str):
    with pytest.raises(UserError, match=message):
        check(recipe_of(tmp_path, TOKENS, *changes))


def test_weights_that_do_not_fit_are_refused(tmp_path: Path, base: Path):
    (tmp_path / "empty").mkdir()
    save_safetensors({"other": torch.zeros(2)}, tmp_path / "other.safetensors")
    for name, message in (
        (tmp_path / "empty", "has no checkpoint"),
        (tmp_path / "other.safetensors", "does not fit: .*embedding"),
        (tmp_path / "nowhere.safetensors", "does not fit: .*No such file"),
        (base, "does not fit: "),  # of another width
    ):
        recipe = recipe_of(tmp_path, TOKENS, SIZES, "model.sizes.hidden=32", f"model.weights={name}")
        with pytest.raises(UserError, match=rf"(?s)model\.weights: .*{message}"):
            build_model(recipe, None, torch.device("cpu"))


def test_the_layout_engine_has_none(tmp_path: Path):
    with pytest.raises(UserError, match=r"it has no model\.weights = x"):
        layout_settings(recipe_of(tmp_path, TOKENS, "model.weights=x"), "tp2")
