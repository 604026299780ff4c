"""Eight workers on one journal, some of them killed at random moments: none lost, none counted twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from hpo.chaos import check_laws, run_chaos


@pytest.mark.slow
def test_killed_workers_lose_nothing_and_nothing_counts_twice(tmp_path: Path) -> None:
    chaos = run_chaos(tmp_path, trials=40, workers=8, kills=5, command_s=0.2, seed=1)
    assert chaos.kills == 5
    check_laws(chaos, tmp_path, trials=40)
