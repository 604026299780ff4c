"""Transforms: torchvision's semantics, from values worked out by hand (and from torchvision where it is)."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from vivace.train.data import transforms as T


def ramp(width: int, height: int) -> Image.Image:
    """Every pixel tells its column (red) and its row (green)."""
    pixels = np.zeros((height, width, 3), dtype=np.uint8)
    pixels[..., 0] = np.arange(width)[None, :]
    pixels[..., 1] = np.arange(height)[:, None]
    return Image.fromarray(pixels)


def noise(width: int, height: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8))


def test_to_tensor_scales_bytes_and_puts_channels_first() -> None:
    pixels = np.array([[[0, 51, 255], [102, 0, 0]]], dtype=np.uint8)  # one row of two pixels
    expected = torch.tensor([[[0.0, 0.4]], [[0.2, 0.0]], [[1.0, 0.0]]])
    assert torch.equal(T.ToTensor()(Image.fromarray(pixels)), expected)
    assert torch.equal(T.ToTensor()(pixels), expected)
    assert T.ToTensor()(Image.new("L", (4, 2))).shape == (1, 2, 4)


def test_normalize() -> None:
    image = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1) + 0.229
    result = T.Normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.1145, 0.0458))(image)
    torch.testing.assert_close(result.flatten(), torch.tensor([1.0, 2.0, 5.0]))


def test_center_crop_takes_the_middle() -> None:
    crop = np.array(T.CenterCrop(4)(ramp(10, 8)))
    assert crop[0, :, 0].tolist() == [3, 4, 5, 6]
    assert crop[:, 0, 1].tolist() == [2, 3, 4, 5]


def test_center_crop_pads_a_small_image_with_black() -> None:
    crop = np.array(T.CenterCrop(4)(Image.new("RGB", (2, 6), (9, 9, 9))))
    assert crop[..., 0].tolist() == [[0, 9, 9, 0]] * 4


@pytest.mark.parametrize(
    ("size", "image", "expected"),
    [(8, (20, 10), (16, 8)), (8, (10, 25), (8, 20)), ((6, 9), (20, 10), (9, 6)), (8, (3, 2), (12, 8))],
)
def test_resize(size: int | tuple[int, int], image: tuple[int, int], expected: tuple[int, int]) -> None:
    assert T.Resize(size)(ramp(*image)).size == expected


def test_flip_mirrors_left_and_right() -> None:
    image = ramp(5, 3)
    assert np.array(T.RandomHorizontalFlip(p=1.0)(image))[0, :, 0].tolist() == [4, 3, 2, 1, 0]
    assert T.RandomHorizontalFlip(p=0.0)(image) is image


def test_flip_happens_half_of_the_time() -> None:
    torch.manual_seed(0)
    image, flip = ramp(2, 1), T.RandomHorizontalFlip()
    flipped = sum(flip(image) is not image for _ in range(1000))
    assert 450 < flipped < 550  # three deviations: 47


@settings(deadline=None, max_examples=200)
@given(width=st.integers(1, 600), height=st.integers(1, 600), seed=st.integers(0, 2**31))
def test_random_crop_lies_in_the_image(width: int, height: int, seed: int) -> None:
    torch.manual_seed(seed)
    left, top, crop_width, crop_height = T.RandomResizedCrop(8).box(width, height)
    assert 0 <= left < left + crop_width <= width
    assert 0 <= top < top + crop_height <= height


def test_random_crop_keeps_to_its_ranges_of_area_and_aspect() -> None:
    torch.manual_seed(0)
    boxes = [T.RandomResizedCrop(8).box(1000, 1000) for _ in range(500)]
    areas = [width * height / 1e6 for _, _, width, height in boxes]
    aspects = [width / height for _, _, width, height in boxes]
    assert 0.079 < min(areas) < 0.11
    assert 0.85 < max(areas) <= 1.0
    assert 0.745 < min(aspects) < 0.77
    assert 1.30 < max(aspects) < 1.34


@pytest.mark.parametrize(
    ("image", "box"),
    [((400, 100), (133, 0, 133, 100)), ((90, 400), (0, 140, 90, 120)), ((100, 100), (0, 0, 100, 100))],
)
def test_fallback_crop_is_central_with_the_nearest_aspect(
    image: tuple[int, int], box: tuple[int, int, int, int]
) -> None:
    assert T.RandomResizedCrop(8, scale=(2.0, 2.0)).box(*image) == box  # twice the area never fits


def test_random_crop_is_resized_and_follows_the_seed() -> None:
    crop = T.RandomResizedCrop(16)
    torch.manual_seed(7)
    first = crop(noise(40, 30))
    torch.manual_seed(7)
    second = crop(noise(40, 30))
    assert first.size == (16, 16)
    assert np.array_equal(np.array(first), np.array(second))
    assert not np.array_equal(np.array(first), np.array(crop(noise(40, 30))))


def test_same_numbers_as_torchvision() -> None:
    try:
        import torchvision.transforms as theirs
    except (ImportError, RuntimeError) as error:  # RuntimeError: built for another torch
        pytest.skip(f"torchvision is not usable here: {error}")
    normal = {"mean": T.IMAGENET_MEAN, "std": T.IMAGENET_STD}
    for size in [(40, 30), (300, 200), (31, 97), (500, 60)]:
        for seed in range(5):
            results = []
            for lib in (T, theirs):
                torch.manual_seed(seed)
                train = lib.Compose(
                    [
                        lib.RandomResizedCrop(24),
                        lib.RandomHorizontalFlip(),
                        lib.ToTensor(),
                        lib.Normalize(**normal),
                    ]
                )
                val = lib.Compose([lib.Resize(33), lib.CenterCrop(29), lib.ToTensor()])
                square = lib.Compose([lib.Resize((33, 33)), lib.CenterCrop(50), lib.ToTensor()])
                results.append([transform(noise(*size)) for transform in (train, val, square)])
            for ours, other in zip(*results, strict=True):
                assert torch.equal(ours, other)
