"""Masked language modelling: which tokens are hidden, and that a model finds them again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from recipes.small import TOKENS, losses, recipe_of, trained

from vivace.errors import UserError
from vivace.recipes.checking import check
from vivace.recipes.masking import IGNORED, masked
from vivace.recipes.models import build_model
from vivace.recipes.on_layouts import layout_settings
from vivace.recipes.sources import EVALUATED, Key, Source, open_source

MASKED = ("model.sizes.causal=false", "objective.name=masked", "model.sizes.vocab=33")


def source_of(folder: Path, *changes: str) -> tuple[Source, Source]:
    """The plain tokens and the masked ones."""
    recipe = recipe_of(folder, TOKENS, *MASKED, *changes)
    plain = open_source(recipe, train=True)
    hidden = masked(recipe, plain)
    assert plain is not None
    assert hidden is not None
    return plain, hidden


def test_what_is_hidden_is_the_target_and_nothing_else_changes(tmp_path: Path):
    plain, hidden = source_of(tmp_path, "data.seq_len=100", "data.samples=400", "objective.mask_share=0.2")
    keys = [Key(number, 0) for number in range(400)]
    original, found = plain[keys].inputs, hidden[keys]
    chosen = found.targets != IGNORED
    assert chosen.sum(dim=1).tolist() == [20] * 400
    assert torch.equal(found.targets[chosen], original[chosen])
    assert torch.equal(found.inputs[~chosen], original[~chosen])
    shown = found.inputs[chosen]
    assert int(original.max()) == 31
    assert float((shown == 32).double().mean()) == pytest.approx(0.8, abs=0.02)
    kept = 0.1 + 0.1 / 32  # a random token may be the same
    assert float((shown == original[chosen]).double().mean()) == pytest.approx(kept, abs=0.02)


def test_each_epoch_hides_others_and_validation_always_the_same(tmp_path: Path):
    _, hidden = source_of(tmp_path, "data.seq_len=100")

    def of(number: int, epoch: int) -> list[int]:
        return hidden[[Key(0, 3), Key(number, epoch)]].inputs[1].tolist()  # whatever else is in the batch

    assert of(5, 0) == hidden[[Key(5, 0)]].inputs[0].tolist()
    assert of(5, 0) != of(5, 1)
    assert of(5, EVALUATED) == of(5, EVALUATED)


def test_a_masked_model_sees_both_sides(tmp_path: Path):
    tokens = torch.arange(8).repeat(2, 1)
    tokens[1, 7] = 20
    for changes, sees in ((MASKED, True), ((), False)):
        recipe = recipe_of(tmp_path, TOKENS, *changes)
        first, second = build_model(recipe, None, torch.device("cpu"))(tokens)
        assert torch.equal(first[0], second[0]) is not sees


def test_it_learns_and_passes_do_not_change_it(tmp_path: Path):
    """A row of eight letters, again and again: a hidden one follows from any other, wherever a sequence begins."""
    (tmp_path / "letters.txt").write_text("abcdefgh" * 1000)
    changes = (
        *MASKED, f"data.train={tmp_path / 'letters.txt'}", "data.val_share=0.1", "data.seq_len=15", "batch=32",
        "model.sizes.vocab=257", "optim.lr=0.005", "model.sizes.hidden=32", "duration=400ba", "validation.every=100ep",
    )  # fmt: skip
    record = trained(tmp_path / "whole", TOKENS, *changes)
    assert record.val_accuracy is not None
    assert record.val_accuracy > 0.9
    trained(tmp_path / "pieces", TOKENS, *changes, "accumulate=4", "duration=5ba")
    whole, pieces = losses(tmp_path / "whole"), losses(tmp_path / "pieces")
    for step in range(1, 6):
        assert float(pieces[step]) == pytest.approx(float(whole[step]), rel=1e-5)


def test_the_mask_must_not_be_in_the_data(tmp_path: Path):
    np.full(100, 32, dtype=np.uint16).tofile(tmp_path / "tokens.bin")
    _, hidden = source_of(tmp_path, f"data.train={tmp_path / 'tokens.bin'}")
    with pytest.raises(UserError, match=r"have the token 32, and model\.sizes\.vocab is 33, whose last token"):
        hidden[[Key(0, 0)]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (("objective.name=masked",), "a masked token is found from both sides"),
        (("model.sizes.causal=false",), "each token would see the next one"),
        ((*MASKED, "model.name=hf:gpt2"), "masked hides tokens of gpt, and model.name is hf:gpt2"),
        ((*MASKED, "data.train=mine.py:tokens"), "data of your own bring their own targets"),
    ],
)
def test_what_cannot_be_masked_is_refused(tmp_path: Path, changes: tuple[str, ...], message: str):
    with pytest.raises(UserError, match=message):
        check(recipe_of(tmp_path, TOKENS, *changes))


def test_the_layout_engine_has_no_masks(tmp_path: Path):
    with pytest.raises(UserError, match=r"it has no model\.sizes\.causal = False"):
        layout_settings(recipe_of(tmp_path, TOKENS, *MASKED), "tp2")
