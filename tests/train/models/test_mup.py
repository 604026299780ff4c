"""µP: the laws of its table, that the base is the plain model, and that activations stay of one size over widths."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from recipes.small import TOKENS, losses, recipe_of, trained

from vivace.errors import UserError
from vivace.recipes import training as parts
from vivace.recipes.checking import check
from vivace.recipes.models import mup_of
from vivace.recipes.on_layouts import layout_settings
from vivace.recipes.optimizing import RATE_FACTOR, make_optimizer
from vivace.recipes.recipe import Recipe
from vivace.train.models.gpt import GPT


def wide(folder: Path, hidden: int, *changes: str) -> Recipe:
    return recipe_of(folder, TOKENS, f"model.sizes.hidden={hidden}", "optim.weight_decay=0.1", *changes)


def built(recipe: Recipe) -> GPT:
    model = parts.build_model(recipe, None, torch.device("cpu"))
    assert isinstance(model, GPT)
    return model


def test_at_the_base_width_it_is_the_plain_model_bit_for_bit(tmp_path: Path):
    trained(tmp_path / "plain", TOKENS, "optim.weight_decay=0.1")
    trained(tmp_path / "mup", TOKENS, "optim.weight_decay=0.1", "model.mup_base_width=16")
    assert losses(tmp_path / "plain") == losses(tmp_path / "mup")


@pytest.mark.parametrize(("base_heads", "scale"), [("none", (16 / 2) ** 0.5 / 32), (1, 16**0.5 / 32), (2, 8**0.5 / 32)])
def test_four_times_the_width(tmp_path: Path, base_heads: object, scale: float):
    """Two heads of 32 on a base of 16: its heads are of 8 (two) or of 16 (one)."""
    recipe = wide(tmp_path, 64, "model.mup_base_width=16", f"model.mup_base_heads={base_heads}")
    plain, model = dict(built(wide(tmp_path, 64)).named_parameters()), built(recipe)
    for name, parameter in model.named_parameters():
        hidden = name.startswith("blocks.") and parameter.ndim == 2
        torch.testing.assert_close(parameter, plain[name] / (2 if hidden else 1))
    assert model.logit_factor == 0.25
    assert model.blocks["0"].attention.core.scale == pytest.approx(scale)  # type: ignore[union-attr]
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    found = {
        names[id(each)]: (group[RATE_FACTOR], group["weight_decay"])
        for group in make_optimizer(recipe, model).param_groups
        for each in group["params"]
    }
    assert found["blocks.0.attention.query.weight"] == found["blocks.1.ffn.down.weight"] == (0.25, 0.4)
    assert found["embedding.weight"] == found["output.weight"] == (1.0, 0.1)
    assert found["blocks.0.attention_norm.weight"] == found["norm.weight"] == (1.0, 0.0)
    assert len(found) == len(names)


def test_more_heads_of_the_same_size_leave_attention_as_it_is(tmp_path: Path):
    recipe = wide(tmp_path, 64, "model.sizes.heads=8", "model.mup_base_width=16", "model.mup_base_heads=2")
    assert built(recipe).blocks["0"].attention.core.scale is None  # type: ignore[union-attr]
    mup = mup_of(recipe)
    assert mup is not None
    assert mup.attention_scale() == pytest.approx(8**-0.5)


def changes(recipe: Recipe) -> tuple[float, float]:
    """How far five steps on one batch move the last block's output and the logits: roots of the mean square."""
    model = built(recipe)
    optimizer = make_optimizer(recipe, model)
    tokens = torch.randint(32, (8, 9), generator=torch.Generator().manual_seed(1))
    outputs: list[torch.Tensor] = []
    model.blocks["1"].register_forward_hook(lambda module, inputs, output: outputs.append(output.detach()))
    for _ in range(6):  # the last step is for its forward pass
        for group in optimizer.param_groups:
            group["lr"] = recipe.optim.lr * group.get(RATE_FACTOR, 1.0)
        logits = model(tokens[:, :-1])
        outputs.append(logits.detach())
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()
    block, logits = outputs[-2] - outputs[0], outputs[-1] - outputs[1]
    return float(block.square().mean().sqrt()), float(logits.square().mean().sqrt())


def test_coordinate_check(tmp_path: Path):
    """Yang et al., appendix D.1: what a few steps change stays of one size with µP, and grows with width without."""
    widths, rate = (32, 128, 512), "optim.lr=0.002"
    with_mup = [changes(wide(tmp_path, width, rate, "model.mup_base_width=32")) for width in widths]
    without = [changes(wide(tmp_path, width, rate)) for width in widths]
    assert with_mup[0] == without[0]
    for flat, growing in zip(zip(*with_mup, strict=True), zip(*without, strict=True), strict=True):
        assert max(flat) < 1.5 * min(flat), flat
        assert growing[0] < growing[1] < growing[2]
        assert growing[2] > 3 * growing[0], growing


def test_a_stopped_training_keeps_the_rates_of_its_groups(tmp_path: Path):
    changes = ("model.sizes.hidden=64", "model.mup_base_width=16", "checkpoints.every=100ba")
    trained(tmp_path / "whole", TOKENS, *changes)
    folder = f"checkpoints.folder={tmp_path / 'saved'}"
    trained(tmp_path / "parts", TOKENS, *changes, folder, "duration=3ba")
    trained(tmp_path / "parts", TOKENS, *changes, folder)
    assert losses(tmp_path / "parts") == losses(tmp_path / "whole")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (("model.mup_base_width=16", "optim.name=sgd"), "its rates are those of adamw, not of sgd"),
        (("model.mup_base_width=15",), "15 is no multiple of 2 heads"),
        (("model.mup_base_heads=2",), "there is no base width"),
        (("model.mup_base_width=16", "model.name=hf:gpt2"), "the widths of hf:gpt2 are not known"),
    ],
)  # fmt: skip
def test_what_has_no_mup_is_refused(tmp_path: Path, changes: tuple[str, ...], message: str):
    with pytest.raises(UserError, match=message):
        check(recipe_of(tmp_path, TOKENS, *changes))


def test_the_layout_engine_has_none(tmp_path: Path):
    with pytest.raises(UserError, match=r"it has no model\.mup_base_width = 16"):
        layout_settings(recipe_of(tmp_path, TOKENS, "model.mup_base_width=16"), "tp2")
