"""``vivace hpo … RECIPE``: the command is ``vivace train RECIPE``, and the parameters are its settings.

vivace hpo --param 'optim.lr=log(1e-3,1)' --metric 'max val_accuracy' cifar10 --set data.train=train.parquet
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from vivace.hpo.asked import Asked
from vivace.recipes.reading import read_recipe, shipped_names
from vivace.train.settings import MODELS, TrainSettings, with_changes

__all__ = ["check_settings", "is_training", "training_command"]


def is_training(words: Sequence[str]) -> bool:
    """A recipe that ships, a recipe's file, or a model of vivace: not a program."""
    first = words[0]
    return first in (*shipped_names(), *MODELS) or (first.endswith(".toml") and Path(first).is_file())


def training_command(words: Sequence[str], names: Sequence[str]) -> list[str]:
    """``names``: of the parameters. Each trial writes to its own folder; the confirmation sets the seed."""
    settings = [word for name in names for word in ("--set", f"{name}={{{name}}}")]
    own = ["--set", "seed={seed}", "--output", "{folder}"]
    return [sys.executable, "-m", "vivace", "train", *words, *settings, *own]


def check_settings(asked: Asked, words: Sequence[str]) -> None:
    """A parameter that is no setting is refused now, not by the first trial."""
    changes = [f"{name}={text}" for name, text in asked.space.texts(asked.baseline).items()]
    if words[0] in MODELS:
        with_changes(TrainSettings(model=words[0]), changes)
    else:
        given = [after for word, after in pairwise(words) if word == "--set"]
        read_recipe(words[0], [*given, *changes])
