"""Persistent workers: found when short epochs start their workers again and again; then the same processes live on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from practices.changed import run_with
from practices.evidence import measurement
from practices.loaders import loader

from vivace.practices.persistent_workers import find

# Five epochs of ten batches begun since the first backward, 300 ms each until the first batch is there.
SHORT_EPOCHS = {"num_workers": 4, "prefetch_factor": 2, "epochs": 5, "batches": 50, "epoch_start_ms": 1500.0}
WAITS = {"loader": 35.0, "forward": 20.0, "backward": 40.0}


def test_found_and_priced_by_the_starts_of_epochs():
    found = find(measurement(phases=WAITS, loaders=(loader(**SHORT_EPOCHS),)))
    assert found is not None
    assert found.exposed_ms == 30.0  # 1500 ms over 50 batches; 5 ms of the wait have other causes
    assert found.evidence["epoch_start_ms"] == 300.0
    assert found.where == ("train.py", 12)
    assert found.why_not is None


def test_the_price_is_no_more_than_the_wait_that_was_seen():
    found = find(measurement(phases={**WAITS, "loader": 4.0}, loaders=(loader(**SHORT_EPOCHS),)))
    assert found is not None
    assert found.exposed_ms == 4.0


def test_with_accumulation_a_step_takes_several_batches():
    found = find(measurement(phases={**WAITS, "loader": 90.0}, loaders=(loader(**SHORT_EPOCHS),), micro_batches=2.0))
    assert found is not None
    assert found.exposed_ms == 60.0


def test_a_loader_made_anew_for_every_epoch_is_left_to_the_user():
    found = find(measurement(phases=WAITS, loaders=(loader(**SHORT_EPOCHS, made=6),)))
    assert found is not None
    assert found.why_not == "the script makes a new loader for every epoch: make one before the loop"


@pytest.mark.parametrize(
    "change",
    [
        {"persistent_workers": True},
        {"num_workers": 0},
        {"epochs": 0, "epoch_start_ms": 0.0},  # still in its first epoch
        {"batches": 5000, "epochs": 1},  # long epochs: 0.3 ms per step
    ],
)
def test_not_found_when_present_or_of_no_use(change: dict):
    assert find(measurement(phases=WAITS, loaders=(loader(**{**SHORT_EPOCHS, **change}),))) is None


SCRIPT = """
import json, os, torch
from torch.utils.data import DataLoader, Dataset

class Who(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        return torch.tensor([float(index), float(os.getpid())], dtype=torch.float64)

class Told(Who):
    def set_epoch(self, epoch):
        pass

if __name__ == "__main__":
    model = torch.nn.Linear(1, 1, dtype=torch.float64)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    loader = DataLoader(KIND(), 2, num_workers=WORKERS)
    makers = []
    for _ in range(2):
        rows = list(loader)
        for row in rows:
            model(row[:, :1]).sum().backward()
            optimizer.step()
        makers.append(sorted(set(torch.cat(rows)[:, 1].tolist())))
    print(json.dumps(makers))
"""


def script(kind: str = "Who", workers: int = 2) -> str:
    return SCRIPT.replace("KIND", kind).replace("WORKERS", str(workers))


def test_the_same_processes_load_every_epoch(tmp_path: Path):
    done = run_with(script(), ["persistent_workers"], tmp_path)
    assert done.told == {"persistent_workers": "applied: workers live on between epochs"}
    first, second = done.printed
    assert len(first) == 2
    assert first == second


def test_a_dataset_that_is_told_of_epochs_keeps_its_new_workers(tmp_path: Path):
    done = run_with(script("Told"), ["persistent_workers"], tmp_path)
    assert "set_epoch" in done.told["persistent_workers"]
    first, second = done.printed
    assert set(first).isdisjoint(second)


def test_without_workers_there_are_none_to_keep(tmp_path: Path):
    done = run_with(script(workers=0), ["persistent_workers"], tmp_path)
    assert done.told == {"persistent_workers": "the loader has no workers to keep"}


def test_measuring_tells_the_starts_of_epochs_from_the_waits_within(vivace_here: Callable, tmp_path: Path):
    import sys

    path = tmp_path / "epochs.py"
    path.write_text("""
import torch
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    dataset = TensorDataset(torch.ones(16, 1))
    for _ in range(100):
        for (row,) in DataLoader(dataset, 4):  # made anew for every epoch of four batches
            model(row).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
""")
    record = vivace_here("measure", "--json", "--steps", "8", "--warmup", "8", "--", sys.executable, str(path)).record
    (seen,) = record["loaders"]  # one line makes them all
    assert seen["made"] == seen["epochs"] + 1  # the first epoch began before the first backward
    assert seen["epochs"] >= 4
    assert 4 * seen["epochs"] - 1 <= seen["batches"] <= 4 * (seen["epochs"] + 1)
    assert seen["epoch_start_ms"] > 0
    assert seen["wait_ms"] > 0
