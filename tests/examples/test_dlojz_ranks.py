"""The course's trainer on two processes gives the numbers of one: unedited under vivace, and with DDP by hand."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import torch
from conftest import VIVACE, environment
from forked.process import PYTHON

ROOT = Path(__file__).parents[2]
SMALL = [PYTHON, str(Path(__file__).parent / "small_in_fp64.py")]
TORCHRUN = [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", SMALL[1]]
RANKS = [*VIVACE, "run", "--no-prove", "--ranks", "2", "--with", "ddp", "--", *SMALL]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("name", "images", "start", "batch"),
    # 27 images: a last batch that is smaller. By hand 24, since DistributedSampler repeats some to make shares equal.
    [("dlojz.py", 27, RANKS, 8), ("dlojz_ddp.py", 24, TORCHRUN, 4)],
)
def test_two_processes_give_the_numbers_of_one(name: str, images: int, start: list[str], batch: int, tmp_path: Path):
    script = str(ROOT / "examples" / name)
    options = ["--image-size", "16", "--num-workers", "0", "--dataset-size", str(images), "-e", "2", "-b"]
    alone, together = tmp_path / "alone", tmp_path / "together"
    printed = finished([*start, script, *options, str(batch)], together)
    expected = losses(finished([*SMALL, script, *options, "8"], alone))
    assert len(expected) == 2 * (-(-images // 8) + 1)
    assert losses(printed) == expected  # each line once
    assert "global batch size: 8 - " in printed
    weights = [torch.load(folder / "checkpoints" / "local_8.pt") for folder in (alone, together)]
    for key, value in weights[0].items():
        torch.testing.assert_close(value, weights[1][key], rtol=1e-9, atol=1e-12, msg=key)
    assert [path.name for path in (together / "checkpoints").iterdir()] == ["local_8.pt"]


def finished(command: list[str], folder: Path) -> str:
    """What it printed. In processes of its own, which know nothing of other tests."""
    folder.mkdir()
    done = subprocess.run(
        command, cwd=folder, env=environment(PYTHONPATH=str(ROOT)), capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def losses(text: str) -> list[str]:
    lines = [line for line in text.splitlines() if line.startswith("Epoch")]
    return [re.sub(r"Time: [\d.]+", "", line) for line in lines]
