"""A trial that is itself distributed: all ranks get the same values, and pruning ends all of them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from conftest import environment
from forked.process import PYTHON
from hpo.conftest import SCRIPTS

from vivace.hpo.asked import Asked, PrunerName, SamplerName
from vivace.hpo.ledger import Claimed, Ledger, Part
from vivace.hpo.outcome import Ended, Outcome, outcome_of
from vivace.hpo.space import Real
from vivace.hpo.worker import work


def test_two_ranks_of_torchrun_get_one_value_and_are_pruned_together(
    asked: Callable[..., Asked], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    notes = tmp_path / "notes"
    torchrun = (PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--no-python")
    made = asked(
        command=(*torchrun, sys.executable, "-IS", str(SCRIPTS / "ranks.py"), str(notes), "{x}", "0"),
        reals=(Real("x", 10.0, 20.0),), order=("x",), trials=4, pruner=PrunerName.ASHA, sampler=SamplerName.RANDOM,
    )  # fmt: skip
    ledger = Ledger(tmp_path, made)
    for n in range(3):  # three whole trials, better than all that is to come
        claimed = ledger.claim("before")
        assert isinstance(claimed, Claimed)
        for step in range(1, 10):
            claimed.trial.report(1.0 + n, step)
            claimed.trial.should_prune()  # notes it on its rungs
        ledger.close(claimed, Outcome(Ended.COMPLETE, value=1.0 + n, readings=9))
    assert work(tmp_path) == 0
    outcome = outcome_of(ledger.trials(Part.SEARCH)[-1])
    assert outcome is not None
    assert outcome.ended is Ended.PRUNED
    ranks = [line.split() for line in notes.read_text().splitlines()]
    assert sorted(rank for rank, _value, _pid in ranks) == ["0", "1"]
    assert {value for _rank, value, _pid in ranks} == {repr(ledger.trials(Part.SEARCH)[-1].params["x"])}
    assert not any(psutil.pid_exists(int(pid)) for _rank, _value, pid in ranks)
