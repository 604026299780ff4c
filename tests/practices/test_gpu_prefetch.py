"""Prefetch to the GPU: found when large batches are copied while the GPU waits; the script's copies are then ready."""

from __future__ import annotations

import gc
import sys
import weakref
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
import torch
from practices.changed import needs_gpu, run_with
from practices.evidence import measurement
from practices.loaders import loader

from vivace.practices.engine.change import NotApplicable
from vivace.practices.gpu_prefetch import GpuPrefetch, find
from vivace.records.measurement import Copies
from vivace.tune.trials import TrialSettings, run_trial

COPY = Copies(kind="Memcpy HtoD (Pinned -> Device)", per_step=2, ms_per_step=6.0, mib_per_step=294.0)
EXPOSED = {"phases": {"copy": 5.0}, "profile": {"copies": (COPY,)}, "loaders": (loader(num_workers=8),)}


def test_found_when_large_batches_are_copied_while_the_gpu_waits():
    found = find(measurement(**EXPOSED))
    assert found is not None
    assert found.exposed_ms == 5.0
    assert found.evidence == {"copy_ms": 5.0, "mib_per_step": 294.0, "num_workers": 8}
    assert found.why_not is None


def test_the_price_is_the_copies_own_time_and_no_wait_of_the_host():
    found = find(measurement(**{**EXPOSED, "phases": {"copy": 30.0}}))
    assert found is not None
    assert found.exposed_ms == 6.0


def test_a_loader_without_workers_is_told_to_get_some():
    found = find(measurement(**{**EXPOSED, "loaders": (loader(),)}))
    assert found is not None
    assert found.why_not == "the loader has no workers: ask for workers too"


@pytest.mark.parametrize(
    "present",
    [
        {"phases": {"copy": 0.2}},  # hidden behind the model's work
        {"profile": {"copies": (COPY.model_copy(update={"mib_per_step": 0.2}),)}},
        {"profile": {"copies": ()}},
        {"loaders": ()},
        {"on_gpu": False},
    ],
)
def test_not_found_when_present_or_of_no_use(present: dict):
    assert find(measurement(**{**EXPOSED, **present})) is None


class Side:
    """A side stream on a machine without one: remembers what was sent, and hands over copies on the host."""

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.alive: weakref.WeakSet[torch.Tensor] = weakref.WeakSet()  # of the copies
        self.handed_over = 0

    def send(self, tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        self.sent.append(int(tensor.flatten()[0]))
        copy = tensor.clone()
        self.alive.add(copy)
        return copy, "whole"

    def hand_over(self, copy: torch.Tensor, whole: Any) -> None:
        assert whole == "whole"
        self.handed_over += 1


class TwoWorkers:
    num_workers = 2


@pytest.fixture
def change(monkeypatch: pytest.MonkeyPatch) -> GpuPrefetch:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    change = GpuPrefetch()
    change.side = Side()
    return change


def number(n: int) -> torch.Tensor:
    return torch.full((2,), n)


def copied(change: GpuPrefetch, tensor: torch.Tensor) -> torch.Tensor | None:
    """What a loop's ``tensor.to(device)`` asks."""
    return change.arrived(tensor)


def test_from_the_second_batch_on_copies_have_arrived(change: GpuPrefetch):
    seen = []
    for batch in change.iterator(TwoWorkers(), iter([number(n) for n in range(5)])):
        arrived = copied(change, batch)
        seen.append((int(batch[0]), arrived is not None and arrived is not batch and torch.equal(arrived, batch)))
    assert [n for n, _ in seen] == [0, 1, 2, 3, 4]  # nothing lost, nothing twice, in order
    # What the loop copies is learnt from the first batch, while the second is not fetched yet.
    assert [ready for _, ready in seen] == [False, False, True, True, True]
    assert change.done == "the next batch is copied on a side stream"


def test_a_second_epoch_of_the_same_loader_knows_what_is_copied(change: GpuPrefetch):
    loader = TwoWorkers()
    for _ in range(2):
        ready = [copied(change, b) is not None for b in change.iterator(loader, iter([number(n) for n in range(3)]))]
    assert ready == [False, True, True]


def test_only_what_the_loop_copies_is_sent(change: GpuPrefetch):
    batches = [{"image": number(n), "name": ["cat"], "label": number(10 + n)} for n in range(4)]
    for batch in change.iterator(TwoWorkers(), iter(batches)):
        copied(change, batch["image"])
        assert batch["label"].numpy()[0] == 10 + batch["image"][0]  # on the host, as ever
    assert change.side.sent == [2, 3]


def test_batches_keep_their_nesting_and_types(change: GpuPrefetch):
    Pair = namedtuple("Pair", "inputs targets")
    given = [Pair(number(n), {"deep": [number(n), (number(n), "text")]}) for n in range(4)]
    taken = []
    for batch in change.iterator(TwoWorkers(), iter(given)):
        copied(change, batch.targets["deep"][1][0])
        taken.append(batch)
    assert all(a is b for a, b in zip(taken, given, strict=True))


def test_a_batch_that_the_script_wrote_to_is_copied_again(change: GpuPrefetch):
    arrived = []
    for batch in change.iterator(TwoWorkers(), iter([number(n) for n in range(4)])):
        batch += 1  # augmentation in place, after the copy was sent
        arrived.append(copied(change, batch))
    assert arrived == [None] * 4


def test_a_second_copy_of_the_same_tensor_is_another_tensor(change: GpuPrefetch):
    for batch in change.iterator(TwoWorkers(), iter([number(n) for n in range(3)])):
        first, second = copied(change, batch), copied(change, batch)
    assert first is not None
    assert second is None  # torch copies again


def test_copies_that_nobody_asks_for_are_given_up(change: GpuPrefetch):
    for step, batch in enumerate(change.iterator(TwoWorkers(), iter([number(n) for n in range(6)]))):
        if step < 2:
            copied(change, batch)
        assert len(change.side.alive) <= 2  # of this batch and the next

    gc.collect()
    assert len(change.side.alive) == 0


def test_an_epoch_that_is_left_early_leaves_no_copy_behind(change: GpuPrefetch):
    loader, left = TwoWorkers(), []
    for _ in range(4):
        for step, batch in enumerate(change.iterator(loader, iter([number(n) for n in range(6)]))):
            copied(change, batch)
            if step == 2:
                break
        gc.collect()
        left.append(len(change.side.alive))
    assert change.side.handed_over > 0
    assert left == [0] * 4


def test_a_loader_that_is_gone_while_its_iterator_is_in_use_is_still_known(change: GpuPrefetch):
    iterator = change.iterator(TwoWorkers(), iter([number(n) for n in range(3)]))
    gc.collect()
    assert [copied(change, batch) is not None for batch in iterator] == [False, False, True]


def test_an_error_of_the_loader_comes_when_its_batch_is_asked_for(change: GpuPrefetch):
    def batches():
        yield from (number(0), number(1), number(2))
        raise RuntimeError("broken file")

    seen = []
    with pytest.raises(RuntimeError, match="broken file"):  # noqa: PT012
        for batch in change.iterator(TwoWorkers(), batches()):
            copied(change, batch)
            seen.append(int(batch[0]))
    assert seen == [0, 1, 2]


def test_a_loader_without_workers_is_left_alone(change: GpuPrefetch):
    no_workers = TwoWorkers()
    no_workers.num_workers = 0
    with pytest.raises(NotApplicable, match="no workers"):
        change.iterator(no_workers, iter([]))


def test_two_loaders_side_by_side(change: GpuPrefetch):
    left = change.iterator(TwoWorkers(), iter([number(n) for n in range(4)]))
    right = change.iterator(TwoWorkers(), iter([number(10 + n) for n in range(4)]))
    ready = []
    for a, b in zip(left, right, strict=True):
        ready.append((copied(change, a) is not None, copied(change, b) is not None))
    assert ready == [(False, False), (False, False), (True, True), (True, True)]


SCRIPT = """
import json, torch
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    model = torch.nn.Linear(1024, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    rows = torch.randn(128, 1024, generator=torch.Generator().manual_seed(1))
    loader = DataLoader(TensorDataset(rows, torch.arange(128)), 8, num_workers=2)
    losses, labels_on_host = [], []
    for _ in range(2):
        for row, label in loader:
            loss = model(row.to(device, non_blocking=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
            labels_on_host.append(int(label.numpy()[0]))
    print(json.dumps({"losses": torch.stack(losses).tolist(), "labels": labels_on_host}))
"""


def test_without_a_gpu_it_says_so_and_changes_nothing(tmp_path: Path):
    done = run_with(SCRIPT, ["gpu_prefetch"], tmp_path, CUDA_VISIBLE_DEVICES="")
    assert done.told == {"gpu_prefetch": "there is no GPU to copy to"}
    assert done.printed["labels"] == 2 * list(range(0, 128, 8))


@pytest.mark.gpu
@needs_gpu
def test_on_a_gpu_the_losses_stay_the_same(tmp_path: Path):
    done = run_with(SCRIPT, ["gpu_prefetch"], tmp_path / "with")
    plain = run_with(SCRIPT, [], tmp_path / "without")
    assert done.told == {"gpu_prefetch": "applied: the next batch is copied on a side stream"}
    assert done.printed == plain.printed


@pytest.mark.gpu
@needs_gpu
def test_on_a_gpu_memory_is_not_reused_while_the_model_reads_it(tmp_path: Path):
    """Long kernels behind large batches: a block given back too early would hold the next batch's numbers."""
    script = SCRIPT.replace("Linear(1024, 1)", "Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(40)])")
    done = run_with(script, ["gpu_prefetch"], tmp_path / "with")
    plain = run_with(script, [], tmp_path / "without")
    assert done.printed["losses"] == plain.printed["losses"]


# -- the wait for a batch that was fetched ahead is loader wait --------------------------------------------------------


def check_parts(record: dict) -> None:
    parts = sum(phase["mean"] for phase in record["phases_ms"].values())
    assert parts == pytest.approx(record["step_ms"]["mean"], rel=0.02)


def test_what_a_step_waits_for_a_prefetched_batch_is_named_loader_wait(measure):
    """30 ms to load a batch in one worker, and 10 until the copy is there: no part of it is the forward's, or other."""
    record = measure("prefetched.py", options=("--steps", "12", "--warmup", "8", "--no-profile")).record
    assert record["phases_ms"]["loader"]["mean"] > 10
    assert record["phases_ms"]["loader"]["mean"] > 0.7 * record["step_ms"]["mean"]
    assert record["batch_size"] == 8
    check_parts(record)


SLOW_LOADER = """
import time, torch
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self):
        return 4000
    def __getitem__(self, index):
        time.sleep(0.005)
        return torch.full((256, 1024), float(index))

if __name__ == "__main__":
    model = torch.nn.Linear(1024, 1024).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    for batch in DataLoader(Slow(), batch_size=8, num_workers=1, pin_memory=True):
        loss = model(batch.to("cuda", non_blocking=True)).square().mean()
        optimizer.zero_grad(); loss.backward(); optimizer.step()
"""


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("words", [(), ("gpu_prefetch",)])
def test_on_a_gpu_a_slow_loader_is_named_with_and_without_prefetching(words: tuple, tmp_path: Path):
    script = tmp_path / "slow.py"
    script.write_text(SLOW_LOADER)
    settings = TrialSettings(steps=10, evidence=True)
    command = [sys.executable, str(script)]
    trial = run_trial(command, words, tmp_path / "trial", settings, lambda *_: None, lambda _: None)
    assert trial.measurement is not None, trial.message
    record = trial.measurement.model_dump(mode="json")
    assert record["phases_ms"]["loader"]["mean"] > 0.7 * record["step_ms"]["mean"]
    waits = record["profile"]["idle_during_ms"]
    assert max(waits, key=waits.__getitem__) == "loader"
    check_parts(record)
