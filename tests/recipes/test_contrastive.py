"""Contrastive training: the loss against its formula, on one rank and on two, and that it learns."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from recipes.small import IMAGES, recipe_of, trained

from benchmarks.forked_ranks import on_ranks
from vivace import distributed
from vivace.errors import UserError
from vivace.recipes.checking import check
from vivace.recipes.contrastive import paired
from vivace.recipes.models import build_model
from vivace.recipes.on_layouts import layout_settings

CONTRASTIVE = ("objective.name=contrastive", "augment.crop=resized", "augment.flip=random")


def views(images: int) -> torch.Tensor:
    """First and second views of so many images, five numbers each."""
    return torch.randn(2, images, 5, generator=torch.Generator().manual_seed(3))


def loss_of(embeddings: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(*paired(embeddings, 0.5, all_ranks=True))


def test_the_loss_is_that_of_the_paper():
    rows = [row / row.norm() for row in views(3).flatten(0, 1)]
    total = 0.0
    for i, row in enumerate(rows):
        others = {k: math.exp(float(row @ other) / 0.5) for k, other in enumerate(rows) if k != i}
        total -= math.log(others[(i + 3) % 6] / sum(others.values()))
    assert float(loss_of(views(3).flatten(0, 1))) == pytest.approx(total / 6, rel=1e-5)


def test_two_ranks_have_the_loss_and_gradient_of_one(tmp_path: Path):
    whole = torch.nn.Linear(5, 4)
    one = loss_of(whole(views(4).flatten(0, 1)))
    one.backward()
    weights = whole.state_dict()

    def work() -> None:
        rank, layer = distributed.world().rank, torch.nn.Linear(5, 4)
        layer.load_state_dict(weights)
        loss = loss_of(layer(views(4)[:, 2 * rank : 2 * rank + 2].flatten(0, 1)))
        loss.backward()
        torch.save((loss.detach(), layer.weight.grad), tmp_path / f"{rank}.pt")

    on_ranks(2, work)
    losses, gradients = zip(*(torch.load(tmp_path / f"{rank}.pt") for rank in range(2)), strict=True)
    torch.testing.assert_close(sum(losses) / 2, one.detach())
    torch.testing.assert_close(sum(gradients) / 2, whole.weight.grad)  # as DDP averages them


def test_it_learns_to_find_the_twin(tmp_path: Path):
    changes = (
        *CONTRASTIVE, "augment.scale=[0.3, 1.0]", "batch=64", "optim.name=adamw", "validation.every=1000ep",
        "log.every=400ba",
    )  # fmt: skip
    before = trained(tmp_path / "before", IMAGES, *changes, "optim.lr=1e-9", "duration=1ba")
    after = trained(tmp_path / "after", IMAGES, *changes, "optim.lr=0.01", "duration=400ba")
    assert before.val_loss is not None
    assert after.val_loss is not None
    assert after.val_loss < before.val_loss - 0.3, (before, after)


def test_a_resnet_ends_in_embeddings(tmp_path: Path):
    recipe = recipe_of(tmp_path, IMAGES, *CONTRASTIVE, "model.name=resnet18", "objective.embedding=32")
    model = build_model(recipe, 4, torch.device("cpu"))
    assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 32)
    assert dict(model.named_parameters())["backbone.fc.weight"].shape == (128, 512)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (("objective.name=contrastive",), "both views of an image would be the same"),
        ((*CONTRASTIVE, "accumulate=2"), "accumulate: a view is compared with all others"),
        ((*CONTRASTIVE, "data.train=folder"), "workers cut files once"),
        ((*CONTRASTIVE, "augment.mixup=0.2"), r"augment\.mixup: contrastive training does not have it"),
        ((*CONTRASTIVE, "model.name=cifarnet"), "cifarnet has no last layer for a projection"),
    ],
)
def test_what_has_no_two_views_is_refused(tmp_path: Path, changes: tuple[str, ...], message: str):
    with pytest.raises(UserError, match=message):
        check(recipe_of(tmp_path, IMAGES, *changes))


def test_the_layout_engine_has_none(tmp_path: Path):
    changes = (*CONTRASTIVE, "model.name=resnet18")
    with pytest.raises(UserError, match=r"it has no objective\.name = contrastive"):
        layout_settings(recipe_of(tmp_path, IMAGES, *changes), "fs2")
