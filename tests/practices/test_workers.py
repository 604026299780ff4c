"""Loader workers: found when steps wait for a loader that could have more of them; other processes then load."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from practices.changed import needs_gpu, run_with
from practices.evidence import CPU, measurement
from practices.loaders import loader

from vivace.practices.engine.loaders import pinning_is_slowest
from vivace.practices.workers import PRACTICE, find
from vivace.records.measurement import HostMemory, Loader, Measurement
from vivace.records.structure import Spot


def waiting(*loaders: Loader, wait_ms: float = 40.0, **fields) -> Measurement:
    return measurement(phases={"loader": wait_ms, "forward": 15.0, "backward": 35.0}, loaders=loaders, **fields)


def test_found_when_the_training_process_loads_by_itself():
    found = find(waiting(loader()))
    assert found is not None
    assert found.exposed_ms == 40.0
    assert found.setting == "workers=8"  # the usable cores
    assert found.where == ("train.py", 12)
    assert found.evidence == {"loader_wait_ms": 40.0, "num_workers": 0, "usable_cores": 8}


def test_two_workers_are_not_promised_more_than_two_can_load():
    """36 of 46 ms in one process, on two cores: 18 ms a batch at best."""
    m = measurement(step_ms=46.0, phases={"loader": 36.0}, loaders=(loader(),))
    cpu = m.machine.cpu.model_copy(update={"usable_cores": 2.0})
    found = find(m.model_copy(update={"machine": m.machine.model_copy(update={"cpu": cpu})}))
    assert found is not None
    assert found.setting == "workers=2"
    assert found.exposed_ms == pytest.approx(46.0 - 18.0)
    assert found.evidence["loader_wait_ms"] == 36.0


@pytest.mark.parametrize(("hosts", "setting"), [(("here",) * 4, "workers=2"), (("a", "a", "b", "b"), "workers=4")])
def test_ranks_share_the_cores_of_their_host(hosts: tuple[str, ...], setting: str):
    one = measurement()
    ranks = tuple(
        {"rank": number, "host": host, "device": "cpu", "step_ms": one.step_ms, "phases_ms": {}}
        for number, host in enumerate(hosts)
    )
    found = find(waiting(loader(), ranks=ranks))
    assert found is not None
    assert found.setting == setting


@pytest.mark.parametrize("on_gpu", [True, False])
def test_not_found_when_the_wait_is_not_the_loaders(on_gpu: bool):
    slow_elsewhere = {"loader": 1.0, "copy": 50.0, "other": 30.0}
    assert find(measurement(on_gpu=on_gpu, phases=slow_elsewhere, loaders=(loader(),))) is None


def test_not_found_without_a_loader():
    assert find(waiting()) is None


def test_with_a_worker_on_every_core_it_says_that_the_work_must_shrink():
    found = find(waiting(loader(num_workers=8)))
    assert found is not None
    assert found.setting is None
    assert found.why_not == "all cores are in use; the work per sample must shrink"


@pytest.mark.parametrize(
    ("workers", "wait_ms", "setting"),
    [
        (8, 40.0, "workers=16"),  # 60 of 100 ms are needed: 8 / 0.6 workers
        (8, 92.0, "workers=32"),  # a hundred would be needed; no more than 32 are proposed
        (2, 40.0, "workers=4"),  # as many as the steps need, not as many as cores
    ],
)
def test_workers_that_wait_themselves_are_more_than_the_cores(workers: int, wait_ms: float, setting: str):
    found = find(waiting(loader(num_workers=workers), wait_ms=wait_ms, workers_busy=0.05))
    assert found is not None
    assert found.setting == setting
    assert found.evidence["workers_busy"] == 0.05


def test_memory_bounds_the_workers_that_wait():
    """60 of 64 GiB are taken, 24 of them by 8 workers: half of the rest has no room for another one."""
    host = HostMemory(rss_gib=36.0, rss_peak_gib=36.0, children_rss_gib=24.0, children=8)
    m = waiting(loader(num_workers=8), workers_busy=0.05)
    found = find(m.model_copy(update={"memory": m.memory.model_copy(update={"host": host})}))
    assert found is not None
    assert found.setting is None
    assert "take too much memory" in (found.why_not or "")


def test_of_several_loaders_the_one_that_is_waited_for_is_named():
    train = loader(where=Spot(file="train.py", line=20))
    validation = loader(num_workers=8, batches=4, wait_ms=0.1, where=Spot(file="train.py", line=30))
    found = find(waiting(validation, train))
    assert found is not None
    assert found.where == ("train.py", 20)
    assert found.evidence["num_workers"] == 0


@pytest.mark.parametrize("workers", [0, 1])
def test_an_iterable_dataset_is_found_but_left_to_the_user(workers: int):
    found = find(waiting(loader(iterable=True, batch_size=None, num_workers=workers)))
    assert found is not None
    assert found.why_not == "the dataset is iterable: it must share the work between workers itself"


def test_workers_that_are_ahead_of_the_pinning_thread_are_not_its_business():
    """Large batches are for batch_memory; with small ones nobody but the user can help."""
    ahead = {
        "num_workers": 4,
        "pin_memory": True,
        "unpinned": 300,
        "default_collate": True,
    }  # ten a fetch
    assert find(waiting(loader(**ahead, batch_mib=400.0))) is None
    found = find(waiting(loader(**ahead, batch_mib=1.0)))
    assert found is not None
    assert found.setting is None
    assert found.evidence["unpinned"] == 10.0
    assert "more workers do not help" in (found.why_not or "")
    behind = find(waiting(loader(**{**ahead, "unpinned": 3}, batch_mib=400.0)))
    unknown = find(waiting(loader(**{**ahead, "default_collate": False}, batch_mib=400.0)))  # counted before it is sent
    assert behind is not None
    assert unknown is not None
    assert behind.setting == unknown.setting == "workers=8"


def test_starts_of_epochs_are_not_its_business_when_there_are_workers():
    """2 s of starting over 30 batches are 67 ms per step: more than the wait, so nothing is left for more workers."""
    assert find(waiting(loader(num_workers=2, wait_ms=0.0, epochs=4, epoch_start_ms=2000.0))) is None


def test_rare_long_waits_are_not_its_business_when_there_are_workers():
    series = {"loader": (0.0,) * 14 + (600.0,) + (0.0,) * 14 + (600.0,)}
    assert find(waiting(loader(num_workers=2), series_ms=series)) is None


def test_a_single_core_gets_a_single_worker():
    found = find(waiting(loader(), cpu=CPU.model_copy(update={"usable_cores": 1})))
    assert found is not None
    assert found.setting == "workers=1"


SCRIPT = """
import json, os, torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

class Who(Dataset):  # each sample is the process that made it
    def __len__(self):
        return 8
    def __getitem__(self, index):
        return torch.tensor([float(index), float(os.getpid())], dtype=torch.float64)

class Stream(IterableDataset):
    def __iter__(self):
        return iter(torch.ones(8, 2, dtype=torch.float64))

class Told(Who):
    def set_epoch(self, epoch):
        self.epoch = epoch

if __name__ == "__main__":
    model = torch.nn.Linear(1, 1, dtype=torch.float64)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    loader, small = DataLoader(KIND(), 2), DataLoader(Who(), 4)
    epochs = []
    for _ in range(2):
        rows = list(loader)
        list(small)
        for row in rows:
            model(row[:, :1]).sum().backward()
            optimizer.step()
        rows = torch.cat(rows)
        epochs.append({"samples": rows[:, 0].tolist(), "makers": sorted(set(rows[:, 1].tolist()))})
    print(json.dumps({"me": os.getpid(), "epochs": epochs, "workers": loader.num_workers, "small": small.num_workers}))
"""


def test_other_processes_make_the_same_samples_in_the_same_order_and_live_on(tmp_path: Path):
    done = run_with(SCRIPT.replace("KIND", "Who"), ["workers=2"], tmp_path)
    assert done.told == {"workers=2": "applied: 2 workers, kept between epochs"}
    first, second = done.printed["epochs"]
    assert done.printed["workers"] == done.printed["small"] == 2  # every loader of the script
    assert first["samples"] == second["samples"] == [float(n) for n in range(8)]
    assert len(first["makers"]) == 2
    assert done.printed["me"] not in first["makers"]
    assert first["makers"] == second["makers"]  # the same two processes


SLOW = """
import time, torch
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self):
        return 1000
    def __getitem__(self, index):
        time.sleep(0.01)
        return torch.ones(4)

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for row in DataLoader(Slow(), 4):
    model(row).sum().backward()
    optimizer.step()
"""


def test_a_slow_dataset_is_found_in_a_real_run_at_its_line(vivace_here: Callable, tmp_path: Path):
    path = tmp_path / "slow.py"
    path.write_text(SLOW)
    done = vivace_here("measure", "--json", "--steps", "5", "--", sys.executable, str(path))
    found = find(Measurement.load(done.folder / "measurement.json"))
    assert found is not None
    assert found.where == (str(path), 14)
    assert found.evidence["loader_wait_ms"] > 40  # four samples of 10 ms each
    assert found.exposed_ms > 15  # of which two workers hide half, one the other half behind the step


@pytest.mark.parametrize("workers", [0, 1])
def test_an_iterable_dataset_is_left_alone(workers: int, tmp_path: Path):
    script = SCRIPT.replace("KIND(), 2", f"Stream(), 2, num_workers={workers}")
    done = run_with(script, ["workers=2"], tmp_path)
    assert done.printed["workers"] == workers
    assert len(done.printed["epochs"][0]["samples"]) == 8  # not sixteen: every worker would yield all of it
    assert done.printed["small"] == 2
    assert done.told == {"workers=2": "applied: 2 workers, kept between epochs"}


def test_a_dataset_that_is_told_of_epochs_gets_new_workers_for_each(tmp_path: Path):
    done = run_with(SCRIPT.replace("KIND", "Told").replace(", DataLoader(Who(), 4)", ", []").replace(
        "small.num_workers", "0"), ["workers=2"], tmp_path)  # fmt: skip
    assert done.told == {"workers=2": "applied: 2 workers"}
    first, second = done.printed["epochs"]
    assert set(first["makers"]).isdisjoint(second["makers"])


def test_the_note_on_random_augmentation_is_there():
    assert "Random augmentations draw other numbers" in PRACTICE.why


@pytest.mark.parametrize("wrong", ["0", "-1", "many", ""])
def test_a_number_of_workers_is_asked_for(wrong: str):
    assert PRACTICE.change is not None
    with pytest.raises(ValueError, match="is not a number of workers"):
        PRACTICE.change(wrong)


WAITING = """
import sys, time, torch
from torch.utils.data import DataLoader, Dataset
class Images(Dataset):
    def __len__(self):
        return 100_000
    def __getitem__(self, index):
        if sys.argv[1] == "slow":
            time.sleep(0.02)
        return torch.zeros(3, 512, 512) if sys.argv[1] == "large" else torch.zeros(3, 8, 8)
if __name__ == "__main__":
    model = torch.nn.Linear(8, 1).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    workers = 8 if sys.argv[1] == "large" else 2
    for images in DataLoader(Images(), 32, num_workers=workers, pin_memory=True):
        model(images[:, 0, 0, :8].cuda(non_blocking=True)).sum().backward()
        optimizer.step()
"""


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize(("what", "piles_up"), [("large", True), ("slow", False)])
def test_on_a_gpu_a_slow_pinning_thread_is_told_from_slow_workers(
    vivace_here: Callable, tmp_path: Path, what: str, piles_up: bool
):
    """Eight workers with batches of 96 MiB are ahead of the thread that pins them; two that sleep never are."""
    (tmp_path / "train.py").write_text(WAITING)
    command = (sys.executable, str(tmp_path / "train.py"), what)
    done = vivace_here("measure", "--json", "--steps", "20", "--", *command)
    (one,) = Measurement.load(done.folder / "measurement.json").loaders
    assert pinning_is_slowest(one) is piles_up, one
