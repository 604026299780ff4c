"""Labels have the shares of the pixels; λ is Beta-distributed; every crop lies inside its image."""

from __future__ import annotations

import math
import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vivace.methods.augment import cutmix, cutmix_of, flip, mixup, mixup_of, random_resized_crop, shares_of_classes


def numbered(count: int, height: int = 9, width: int = 7) -> torch.Tensor:
    """Every pixel of image i is i."""
    return torch.arange(count, dtype=torch.float64).view(-1, 1, 1, 1).expand(count, 2, height, width).contiguous()


def draws(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@given(count=st.integers(1, 9), alpha=st.floats(0.05, 5), seed=st.integers(0, 2**31))
def test_a_blend_has_the_shares_that_its_label_says(count: int, alpha: float, seed: int) -> None:
    mix = mixup_of(numbered(count), alpha, draws(seed))
    expected = mix.share * torch.arange(count) + (1 - mix.share) * mix.partner
    assert torch.allclose(mix.images, expected.double().view(-1, 1, 1, 1).expand_as(mix.images), atol=1e-6)


@given(
    count=st.integers(1, 9), alpha=st.floats(0.05, 5), seed=st.integers(0, 2**31), height=st.integers(1, 12),
    width=st.integers(1, 12),
)  # fmt: skip
def test_a_pasted_rectangle_counts_for_its_pixels(count: int, alpha: float, seed: int, height: int, width: int) -> None:
    images = numbered(count, height, width)
    mix = cutmix_of(images, alpha, draws(seed))
    own = (mix.images == images)[:, 0].double().mean(dim=(1, 2))
    moved = mix.partner != torch.arange(count)  # an image pasted onto itself shows no rectangle
    assert torch.allclose(own[moved], mix.share[moved].double(), atol=1e-6)
    foreign = mix.images[:, 0] != images[:, 0]
    partners = mix.partner.double().view(-1, 1, 1).expand_as(foreign)
    assert torch.equal(mix.images[:, 0][foreign], partners[foreign])
    rows, columns = foreign.any(2), foreign.any(1)
    assert torch.equal(foreign, rows.unsqueeze(2) & columns.unsqueeze(1))  # one rectangle


@pytest.mark.parametrize("method", [mixup, cutmix])
def test_targets_are_probabilities_of_both_classes(method: object) -> None:
    targets = torch.tensor([0, 1, 2, 2])
    images, shares = method(numbered(4), targets, 3, 1.0, draws(3))  # type: ignore[operator]
    assert images.shape == (4, 2, 9, 7)
    assert torch.allclose(shares.sum(1), torch.ones(4))
    assert ((shares > 0).sum(1) <= 2).all()
    assert (shares[2:, 2] > 0).all()


def test_soft_targets_give_the_weighted_loss() -> None:
    scores, targets = torch.randn(6, 4, generator=draws(0)), torch.tensor([0, 1, 2, 3, 0, 1])
    mix = mixup_of(numbered(6), 1.0, draws(1))
    soft = torch.nn.functional.cross_entropy(scores, shares_of_classes(mix, targets, 4))
    own, other = (
        torch.nn.functional.cross_entropy(scores, each, reduction="none") for each in (targets, targets[mix.partner])
    )
    assert torch.allclose(soft, (mix.share * own + (1 - mix.share) * other).mean())


@pytest.mark.parametrize("alpha", [0.2, 1.0, 3.0])
def test_lambda_has_the_mean_and_variance_of_beta(alpha: float) -> None:
    share = mixup_of(torch.zeros(200_000, 1, 1, 1), alpha, draws(5)).share
    variance = 1 / (4 * (2 * alpha + 1))
    assert abs(float(share.mean()) - 0.5) < 5 * (variance / 200_000) ** 0.5
    assert float(share.var()) == pytest.approx(variance, rel=0.02)


def torchvision_s_area(side: int, chance: random.Random) -> float:
    """The rule of RandomResizedCrop, image by image."""
    for _ in range(10):
        area, aspect = side * side * chance.uniform(0.08, 1), math.exp(chance.uniform(math.log(3 / 4), math.log(4 / 3)))
        width, height = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < width <= side and 0 < height <= side:
            return width * height / side**2
    return 1.0


def test_crops_lie_inside_have_torchvision_s_areas_and_flips_mirror() -> None:
    ramp = torch.linspace(0, 1, 64).view(1, 1, 1, 64).expand(4000, 1, 64, 64)
    crops = random_resized_crop(ramp, 16, draws=draws(0))
    assert crops.shape == (4000, 1, 16, 16)
    assert crops.min() >= 0
    assert crops.max() <= 1
    widths = (crops[:, 0, 0, 12] - crops[:, 0, 0, 3]) * 16 / 9 * 63 / 64  # of the crop, in widths of the image
    rows = random_resized_crop(ramp.transpose(2, 3), 16, draws=draws(0))[:, 0, :, 0]
    areas = widths * (rows[:, 12] - rows[:, 3]) * 16 / 9 * 63 / 64
    chance = random.Random(0)
    expected = [torchvision_s_area(64, chance) for _ in range(4000)]
    assert float(areas.mean()) == pytest.approx(sum(expected) / 4000, abs=0.02)
    assert float(areas.quantile(0.1)) == pytest.approx(sorted(expected)[400], abs=0.03)
    mirrored = flip(ramp, 0.5, draws(1))
    share = (mirrored[:, 0, 0, 0] > 0.5).float().mean()
    assert float(share) == pytest.approx(0.5, abs=0.05)
    assert torch.equal(flip(ramp, 1.0), ramp.flip(-1))


def test_a_whole_crop_is_the_image() -> None:
    images = torch.randn(3, 2, 8, 8, generator=draws(0))
    assert torch.allclose(random_resized_crop(images, 8, (1.0, 1.0), (1.0, 1.0)), images, atol=1e-6)
