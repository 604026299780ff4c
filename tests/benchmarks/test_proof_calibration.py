"""A part of the calibration of proofs, with fixed seeds: the aims hold within what so few draws can show.

The whole table is benchmarks/results/proof_calibration.csv.
"""

from __future__ import annotations

import importlib
import math
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
DRAWS = 250
COVERAGE, FALSE_PROOFS = 0.94, 0.025


@pytest.fixture(scope="module")
def calibration() -> ModuleType:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        return importlib.import_module("proof_calibration")
    finally:
        sys.path.remove(str(BENCHMARKS))


def margin(share: float, draws: int = DRAWS) -> float:
    """Three standard deviations of a binomial share."""
    return 3 * math.sqrt(share * (1 - share) / draws)


@pytest.mark.parametrize("rounds", [1, 2, 3, 5])
@pytest.mark.parametrize(("kind", "noise"), [("independent", 0.03), ("drift of 10 %", 0.01), ("outliers", 0.06)])
def test_the_interval_holds_the_truth_and_proves_little_that_is_not_there(
    calibration: ModuleType, rounds: int, kind: str, noise: float
):
    machine = replace(calibration.KINDS[kind], run_noise=noise)
    nothing = calibration.Cell("grid", rounds, machine, kind, 1.0)
    found = calibration.tally([calibration.draw_after(nothing, draw) for draw in range(DRAWS)])
    assert found.coverage >= COVERAGE - margin(COVERAGE)
    assert found.proved <= FALSE_PROOFS + margin(FALSE_PROOFS)


def test_a_gain_that_is_there_is_proved(calibration: ModuleType):
    cell = calibration.Cell("grid", 3, calibration.Machine(0.03), "independent", 1.3)
    found = calibration.tally([calibration.draw_after(cell, draw) for draw in range(DRAWS)])
    assert found.proved >= 0.99
    assert found.coverage >= COVERAGE - margin(COVERAGE)


def test_the_procedure_before_had_the_fault(calibration: ModuleType):
    """Three pairs whose runs differ by 6 %: it dropped the noise of whole runs."""
    cell = calibration.Cell("before", 3, calibration.Machine(0.06), "independent", 1.0)
    found = calibration.tally([calibration.draw_before(cell, draw) for draw in range(DRAWS)])
    assert found.coverage <= 0.76 + margin(0.76)
    assert found.proved >= 0.115 - margin(0.115)


def test_a_resumed_session_draws_the_same_runs(calibration: ModuleType):
    cell = calibration.Cell("resumed", 3, calibration.Machine(0.03), "independent", 1.3)
    short, long = calibration.draw_out_of_time(cell, 7), calibration.draw_after(cell, 7)
    assert (short.pairs, long.pairs >= 3) == (1, True)
    assert short.interval.high / short.interval.low > long.interval.high / long.interval.low
