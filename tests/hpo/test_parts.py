"""Small parts: patience with a full disk, the energy of GPUs, budgets, the environment of trials."""

from __future__ import annotations

import errno
import os
from types import SimpleNamespace

import pytest

from vivace.errors import UserError
from vivace.hpo.budget import Budget, BudgetUnit
from vivace.hpo.energy import counters
from vivace.hpo.patience import patiently


def _failing(times: int, number: int) -> object:
    left = [times]

    def write() -> str:
        if left[0]:
            left[0] -= 1
            raise OSError(number, os.strerror(number), "journal.log")
        return "written"

    return write


def test_a_full_disk_is_waited_for(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    assert patiently(_failing(3, errno.ENOSPC)) == "written"  # type: ignore[arg-type]
    assert capsys.readouterr().err.count("No space left on device (journal.log); the study waits for room") == 3


def test_patience_ends_and_other_errors_get_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    monkeypatch.setattr("vivace.hpo.patience.PATIENCE_S", -1.0)
    with pytest.raises(UserError, match="the study cannot be written: Disk quota exceeded"):
        patiently(_failing(1, errno.EDQUOT))  # type: ignore[arg-type]
    with pytest.raises(PermissionError):
        patiently(_failing(1, errno.EACCES))  # type: ignore[arg-type]


def test_energy_is_that_of_the_visible_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a driver made up for the test: no GPU is needed, and none was measured."""
    fake = SimpleNamespace(
        nvmlInit=lambda: None, nvmlDeviceGetCount=lambda: 3, nvmlDeviceGetHandleByIndex=lambda n: n,
        nvmlDeviceGetUUID=lambda n: f"GPU-{n}", nvmlDeviceGetTotalEnergyConsumption=lambda n: 1000 * (n + 1),
        NVMLError=RuntimeError,
    )  # fmt: skip
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0")
    assert counters(fake) == (3000, 1000)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert counters(fake) is None


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("2h", Budget(7200, BudgetUnit.SECONDS)),
        ("90 min", Budget(5400, BudgetUnit.SECONDS)),
        ("20gpuh", Budget(72000, BudgetUnit.GPU_SECONDS)),
        ("1.5 GPU-h", Budget(5400, BudgetUnit.GPU_SECONDS)),
        ("500kJ", Budget(5e5, BudgetUnit.JOULES)),
        ("2kWh", Budget(7.2e6, BudgetUnit.JOULES)),
    ],
)
def test_budgets_as_people_write_them(text: str, budget: Budget) -> None:
    assert Budget.parse(text) == budget


@pytest.mark.parametrize("text", ["", "h", "2", "-1h", "2parsecs", "0h", "infh"])
def test_what_is_no_budget_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="--budget"):
        Budget.parse(text)
