"""RandAugment: each operation against Pillow's, and the odds of what is drawn."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image, ImageEnhance, ImageOps

from vivace.methods.augment import randaugment, random_resized_crop, random_shift
from vivace.methods.augment.rand import OPERATIONS, apply_operation, strength_of

WIDTH, HEIGHT = 40, 30


def pictures(count: int = 3) -> list[Image.Image]:
    draws = np.random.default_rng(0)
    small = [draws.integers(0, 256, (7, 9, 3), dtype=np.uint8) for _ in range(count)]
    smooth = [np.asarray(Image.fromarray(each).resize((WIDTH, HEIGHT))) for each in small]
    return [Image.fromarray((each.astype(int) * (3 - i % 2) // 4 + 20 * i).clip(0, 255).astype(np.uint8))
            for i, each in enumerate(smooth)]  # fmt: skip


def by_pillow(image: Image.Image, name: str, by: float) -> Image.Image:
    moved = {
        "shear_x": (1, by, 0, 0, 1, 0), "shear_y": (1, 0, 0, by, 1, 0),
        "translate_x": (1, 0, by, 0, 1, 0), "translate_y": (1, 0, 0, 0, 1, by),
    }  # fmt: skip
    if name in moved:
        return image.transform(image.size, Image.Transform.AFFINE, moved[name], resample=Image.Resampling.NEAREST)
    enhanced = {
        "brightness": ImageEnhance.Brightness, "color": ImageEnhance.Color, "contrast": ImageEnhance.Contrast,
        "sharpness": ImageEnhance.Sharpness,
    }  # fmt: skip
    if name in enhanced:
        return enhanced[name](image).enhance(1 + by)
    others = {
        "identity": lambda: image,
        "rotate": lambda: image.rotate(by),
        "posterize": lambda: ImageOps.posterize(image, int(by)),
        "solarize": lambda: ImageOps.solarize(image, by),
        "autocontrast": lambda: ImageOps.autocontrast(image),
        "equalize": lambda: ImageOps.equalize(image),
    }
    return others[name]()


def as_batch(images: list[Image.Image]) -> torch.Tensor:
    return torch.from_numpy(np.stack([np.array(image) for image in images])).permute(0, 3, 1, 2)


@pytest.mark.parametrize("name", list(OPERATIONS))
@pytest.mark.parametrize("magnitude", [3, 9, 30])
def test_an_operation_gives_pillows_pixels(name: str, magnitude: int):
    images = pictures()
    signs = [1.0, -1.0, 1.0] if name not in ("posterize", "solarize") else [1.0] * 3
    strengths = [sign * strength_of(name, magnitude, HEIGHT, WIDTH) for sign in signs]
    ours = apply_operation(as_batch(images), name, torch.tensor(strengths, dtype=torch.float64))
    theirs = as_batch([by_pillow(image, name, by) for image, by in zip(images, strengths, strict=True)])
    assert torch.equal(ours, theirs)


def test_a_picture_of_one_colour_survives():
    flat = torch.full((1, 3, 8, 8), 77, dtype=torch.uint8)
    for name in ("autocontrast", "equalize", "contrast", "sharpness", "color"):
        assert torch.equal(apply_operation(flat, name, torch.tensor([0.5])), flat), name


def test_strengths_are_torchvisions():
    """Magnitude 9 of 30 for a picture of 224 x 224, worked out from torchvision's table."""
    expected = {
        "shear_x": 0.09,
        "rotate": 9.0,
        "translate_x": 30,
        "brightness": 0.27,
        "posterize": 7,
        "solarize": 178.5,
    }
    assert {name: strength_of(name, 9, 224, 224) for name in expected} == pytest.approx(expected)


def test_all_operations_are_drawn_alike():
    """Of 14,000 pictures that every operation changes: the unchanged ones, and each operation with each sign."""
    draws = torch.Generator().manual_seed(0)
    count = 14_000
    ramp = (torch.arange(16).view(4, 4) * 9 + 50).to(torch.uint8)
    colour = torch.stack([ramp, 255 - ramp, ramp.T.contiguous()])
    images = colour.expand(count, 3, 4, 4).contiguous()
    result = randaugment(images, operations=1, magnitude=30, draws=draws)
    _, counts = result.flatten(1).unique(dim=0, return_counts=True)
    one, half = count / 14, count / 28
    spread = 5 * one**0.5
    outcomes = sorted(counts.tolist())
    signed = sum(abs(each - half) < spread for each in outcomes)
    assert sum(outcomes) == count
    assert all(min(abs(each - k * half) for k in range(1, 9)) < spread for each in outcomes)
    assert signed >= 14  # nine operations have two outcomes each; some of them agree on so small a picture


def test_each_picture_draws_for_itself_and_the_seed_decides():
    images = torch.randint(256, (64, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    one, same, other = (randaugment(images, draws=torch.Generator().manual_seed(seed)) for seed in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert one.dtype == torch.uint8
    copy = images.clone()
    randaugment(images)
    assert torch.equal(images, copy)  # the caller's pictures are left alone


def test_what_it_does_not_take():
    with pytest.raises(ValueError, match="bytes, not"):
        randaugment(torch.zeros(2, 3, 8, 8))
    with pytest.raises(ValueError, match="magnitude is 0 to 30"):
        randaugment(torch.zeros(2, 3, 8, 8, dtype=torch.uint8), magnitude=31)


def test_a_shift_is_a_crop_of_the_mirrored_picture():
    images = torch.randn(200, 3, 9, 7)
    moved = random_shift(images, 2, torch.Generator().manual_seed(0))
    padded = F.pad(images, (2, 2, 2, 2), mode="reflect")
    crops = torch.stack([padded[:, :, y : y + 9, x : x + 7] for y in range(5) for x in range(5)])
    same = (crops == moved).flatten(2).all(dim=2)  # which of the 25 crops each picture is
    assert same.any(dim=0).all()
    chosen = same.float().argmax(dim=0).bincount(minlength=25)
    assert int(chosen.min()) >= 1
    assert float(((chosen - 8.0) ** 2 / 8).sum()) < 52.6  # chi-squared with 24 degrees of freedom, p = 0.0007


def test_bytes_are_rounded_by_a_resized_crop_not_cut_off():
    images = torch.full((4, 3, 16, 16), 100, dtype=torch.uint8)
    assert torch.equal(random_resized_crop(images, 8), torch.full((4, 3, 8, 8), 100, dtype=torch.uint8))
