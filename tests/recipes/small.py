"""Recipes that train in a blink, for the tests."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from vivace import distributed
from vivace.recipes.checking import check
from vivace.recipes.loop import train
from vivace.recipes.reading import read_recipe
from vivace.recipes.recipe import Recipe
from vivace.records.recipe_run import RecipeRun

MODELS = Path(__file__).with_name("models.py")

IMAGES = f"""
batch = 16
duration = "2ep"
[model]
name = "{MODELS}:small"
[data]
train = "generated"
val = "generated"
samples = 64
image_size = 8
classes = 4
workers = 0
[optim]
name = "sgd"
lr = 0.05
[log]
every = "1ba"
"""

TOKENS = """
batch = 8
duration = "6ba"
[model]
name = "gpt"
sizes = { layers = 2, hidden = 16, heads = 2, vocab = 32 }
[data]
kind = "tokens"
train = "generated"
seq_len = 8
samples = 64
[optim]
name = "adamw"
lr = 0.01
[log]
every = "1ba"
"""


def recipe_of(folder: Path, text: str, *changes: str) -> Recipe:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "small.toml").write_text(text)
    return read_recipe(str(folder / "small.toml"), changes)


def trained(folder: Path, text: str, *changes: str) -> RecipeRun:
    """In this process."""
    recipe = recipe_of(folder, text, *changes)
    check(recipe)
    return train(recipe, folder, distributed.world({}))[0]


def losses(folder: Path) -> dict[int, str]:
    with (folder / "metrics.csv").open() as file:
        return {int(row["step"]): row["loss"] for row in csv.DictReader(file)}


def write_images(folder: Path, count: int, size: tuple[int, int] = (20, 16), seed: int = 0) -> list[Path]:
    """JPEGs in two class folders."""
    from PIL import Image

    draws, paths = np.random.default_rng(seed), []
    for number in range(count):
        path = folder / "ab"[number % 2] / f"{number:03}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        small = draws.integers(0, 256, (4, 5, 3), dtype=np.uint8)
        Image.fromarray(small).resize(size).save(path, quality=90)
        paths.append(path)
    return paths
