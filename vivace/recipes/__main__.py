"""``python -m vivace.recipes FOLDER``: one rank of a training with the folder's recipe. ``vivace train`` starts it."""

from __future__ import annotations

import sys
from pathlib import Path

from vivace.recipes.rank import run_rank
from vivace.recipes.recipe import Recipe

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    sys.exit(run_rank(Recipe.load(folder / "recipe.json"), folder))
