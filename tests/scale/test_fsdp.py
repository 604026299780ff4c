"""Sharded parameters are to the script what they were, and each rank keeps its share of them only."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import torch
from conftest import VIVACE, environment
from forked.process import PYTHON
from hypothesis import given
from hypothesis import strategies as st

from vivace.scale.fsdp2 import missing_feature
from vivace.scale.sharded import Chunks

LAWS = Path(__file__).parent / "sharded_laws.py"


@given(st.integers(1, 40), st.integers(1, 9))
def test_rows_are_cut_as_torch_cuts_them(size: int, world: int):
    cut = [len(each) for each in torch.arange(size).chunk(world)]
    sizes = Chunks(size, 0, world).sizes
    assert sizes == cut + [0] * (world - len(cut))
    assert sum(sizes) == size


@pytest.mark.timeout(900)
def test_functions_of_torch_and_the_memory_of_a_rank(tmp_path: Path):
    words = [*VIVACE, "run", "--no-prove", "--ranks", "3", "--with", "fsdp", "--", PYTHON, str(LAWS)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=800, env=environment())
    assert done.returncode == 0, done.stderr
    cases, share = (line.split()[1] for line in done.stdout.splitlines())
    assert int(cases) == 12 * 8 * 6
    assert float(share) < 0.45  # a third, and what the last step still holds of the gathered values


def test_a_torch_without_fsdp2_is_refused_with_a_sentence(monkeypatch: pytest.MonkeyPatch):
    assert missing_feature() is None
    monkeypatch.delattr("torch.distributed.fsdp.fully_shard")
    assert "has no FSDP2" in (missing_feature() or "")
