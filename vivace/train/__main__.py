"""``python -m vivace.train FOLDER``: one rank of a training with the folder's settings. ``vivace train`` starts it."""

from __future__ import annotations

import sys
from pathlib import Path

from vivace.train.rank import run_rank
from vivace.train.settings import TrainSettings

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    sys.exit(run_rank(TrainSettings.load(folder / "settings.json"), folder))
