"""Batch memory used again: found when steps wait for a loader of large batches; the same batches in the same memory."""

from __future__ import annotations

import multiprocessing
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from practices.changed import needs_gpu, run_with
from practices.evidence import measurement
from practices.loaders import loader
from practices.samples import Samples
from torch.utils.data import DataLoader, IterableDataset, default_collate

from vivace.practices import batch_memory
from vivace.practices.batch_memory import PRACTICE, BatchMemory, find
from vivace.practices.engine.batches import tensors_in
from vivace.practices.engine.change import NotApplicable
from vivace.records.measurement import Copies
from vivace.tune.diagnosis import diagnose

COPY = Copies(kind="Memcpy HtoD (Pinned -> Device)", per_step=2, ms_per_step=6.0, mib_per_step=294.0)
LARGE = loader(num_workers=6, batch_mib=150.0, default_collate=True)
WAITING = {"phases": {"loader": 40.0}, "loaders": (LARGE,), "series_ms": {"loader": (40.0,) * 30}}


def with_loader(**fields: Any) -> dict[str, Any]:
    return {"loaders": (LARGE.model_copy(update=fields),)}


# -- finding -------------------------------------------------------------------------------------------------------


def test_found_when_steps_wait_for_large_batches_of_workers():
    found = find(measurement(**WAITING))
    assert found is not None
    assert found.exposed_ms == 40.0
    assert found.evidence == {
        "loader_wait_ms": 40.0, "launch_wait_ms": 0.0, "batch_mib": 150.0, "gib_per_s": 1.46, "num_workers": 6,
    }  # fmt: skip
    assert "waits 40.0 of 100.0 ms" in found.says
    assert "150 MiB per step, 1.5 GiB/s" in found.says
    assert found.where == ("train.py", 12)
    assert found.why_not is None


def test_found_when_its_thread_keeps_the_host_from_launching():
    """250 MiB in 100 ms, 30 of which the GPU has nothing to do: the pinning thread holds Python's lock meanwhile."""
    pinned = LARGE.model_copy(update={"batch_mib": 250.0, "pin_memory": True})
    idle = {"loaders": (pinned,), "roles": {"matmul": 70.0}}
    found = find(measurement(**idle))
    assert found is not None
    assert found.exposed_ms == pytest.approx(30.0)
    assert "waits 30.0 of 100.0 ms for launches" in found.says
    assert find(measurement(**{**idle, "roles": {"matmul": 98.0}})) is None
    unpinned = pinned.model_copy(update={"pin_memory": False})
    assert find(measurement(**{**idle, "loaders": (unpinned,)})) is None
    slower = pinned.model_copy(update={"batch_mib": 150.0})
    assert find(measurement(**{**idle, "loaders": (slower,)})) is None


def test_at_a_lower_rate_it_is_found_by_a_host_that_is_seen_to_launch_nothing():
    """imagenet on an H200: 147 MiB in 78 ms, 1.85 GiB/s, and most of the idle time the host launches nothing."""
    pinned = LARGE.model_copy(update={"batch_mib": 150.0, "pin_memory": True})
    stalled = {"loaders": (pinned,), "roles": {"matmul": 60.0}}
    found = find(measurement(**stalled, profile={"idle_during_ms": {"stall": 30.0, "forward": 10.0}}))
    assert found is not None
    assert found.exposed_ms == pytest.approx(30.0)
    assert find(measurement(**stalled, profile={"idle_during_ms": {"forward": 40.0}})) is None


def test_without_the_loaders_own_figure_it_is_what_goes_to_the_gpu():
    found = find(measurement(**{**WAITING, **with_loader(batch_mib=None)}, profile={"copies": (COPY,)}))
    assert found is not None
    assert found.evidence["batch_mib"] == 294.0


def test_a_step_of_several_batches_counts_them_all():
    found = find(measurement(**WAITING, micro_batches=2.0))
    assert found is not None
    assert found.evidence["batch_mib"] == 300.0


@pytest.mark.parametrize(
    "present",
    [
        with_loader(batch_mib=90.0),  # 0.9 GiB/s
        with_loader(batch_mib=None),  # nothing is known of its size
        with_loader(num_workers=0),
        {"loaders": ()},
        {"phases": {"loader": 4.0}},
        {"series_ms": {"loader": (0.0,) * 14 + (600.0,) + (0.0,) * 14 + (600.0,)}},  # rare waits: see prefetch
        with_loader(batches=30, epochs=4, epoch_start_ms=2000.0),  # starts of epochs: see persistent_workers
        {"practices": {"batch_memory": "applied: …"}},
        {"on_gpu": False},
    ],
)
def test_not_found_when_present_or_of_no_use(present: dict):
    assert find(measurement(**{**WAITING, **present})) is None


@pytest.mark.parametrize(
    ("fields", "reason"), [({"default_collate": False}, "collate_fn of its own"), ({"iterable": True}, "iterable")]
)
def test_a_loader_that_cannot_be_changed_is_found_and_left_to_the_user(fields: dict, reason: str):
    found = find(measurement(**{**WAITING, **with_loader(**fields)}))
    assert found is not None
    assert reason in (found.why_not or "")


def test_it_is_tried_before_more_workers():
    findings = [finding.practice for finding in diagnose(measurement(**WAITING))]
    assert findings.index("batch_memory") < findings.index("workers")


# -- refusing ------------------------------------------------------------------------------------------------------


class Stream(IterableDataset):
    def __iter__(self):
        return iter(torch.ones(8, 2))


USUAL = {
    "dataset": [1, 2, 3], "num_workers": 2, "prefetch_factor": None, "batch_size": 2, "batch_sampler": None,
    "collate_fn": None, "pin_memory": False, "in_order": True,
}  # fmt: skip


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)


@pytest.mark.parametrize(
    ("refused", "reason"),
    [
        ({"num_workers": 0}, "no workers"),
        ({"dataset": Stream()}, "iterable"),
        ({"in_order": False}, "in any order"),
        ({"batch_size": None}, "does not make batches"),
        ({"collate_fn": list}, "a collate_fn of its own"),
    ],
)
def test_what_it_cannot_be_sure_of_is_left_alone(gpu: None, refused: dict, reason: str):
    arguments = {**USUAL, **refused}
    before = dict(arguments)
    with pytest.raises(NotApplicable, match=reason):
        BatchMemory().loader(arguments)
    assert arguments == before


def test_without_a_gpu_it_is_left_alone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(NotApplicable, match="without a GPU batches are not pinned"):
        BatchMemory().loader(dict(USUAL))


@pytest.mark.parametrize(
    "accepted", [{}, {"collate_fn": default_collate}, {"batch_size": None, "batch_sampler": [[0], [1]]}]
)
def test_it_pins_and_says_what_was_done(gpu: None, accepted: dict):
    change, arguments = BatchMemory(), {**USUAL, **accepted}
    change.loader(arguments)
    assert arguments["pin_memory"] is True
    assert change.done == "every worker writes its batches into the same shared memory, 3 batches in turn"


def test_a_loader_made_from_one_that_was_changed_is_changed_anew(gpu: None):
    """Lightning and accelerate make new loaders from the attributes of the script's."""
    first = dict(USUAL)
    BatchMemory().loader(first)
    second = {**first, "num_workers": 4, "prefetch_factor": 5}
    BatchMemory().loader(second)
    assert (second["collate_fn"].slots, second["collate_fn"].workers) == (6, 4)
    without_workers = {**first, "num_workers": 0}
    with pytest.raises(NotApplicable):
        BatchMemory().loader(without_workers)
    assert without_workers["collate_fn"] is default_collate


# -- the same batches ----------------------------------------------------------------------------------------------


@pytest.fixture
def pinning(monkeypatch: pytest.MonkeyPatch, gpu: None) -> None:
    """torch's own pinning thread, on a machine without a GPU: late with its copies, as a busy one is."""

    def pin(tensor: torch.Tensor) -> torch.Tensor:
        time.sleep(0.002)
        return tensor.clone()

    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda *_: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 0)
    monkeypatch.setattr(torch.accelerator, "set_device_index", lambda *_: None)
    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)


def changed(dataset: Any, batch_size: int = 4, **given: Any) -> DataLoader:
    arguments = {**USUAL, "dataset": dataset, "batch_size": batch_size, **given}
    BatchMemory().loader(arguments)
    return DataLoader(**arguments)


def plain(dataset: Any, batch_size: int = 4) -> list[Any]:
    return list(DataLoader(dataset, batch_size))


def assert_same(got: Any, expected: Any) -> None:
    assert type(got) is type(expected)
    if isinstance(expected, torch.Tensor):
        assert (got.dtype, got.shape, got.stride()) == (expected.dtype, expected.shape, expected.stride())
        assert torch.equal(got, expected)
    elif isinstance(expected, dict):
        assert list(got) == list(expected)
        assert_same(list(got.values()), list(expected.values()))
    elif isinstance(expected, (list, tuple)):
        for one, other in zip(got, expected, strict=True):
            assert_same(one, other)
    else:
        assert got == expected


def not_shared(batches: list[Any]) -> bool:
    return not any(tensor.is_shared() for batch in batches for tensor in tensors_in(batch))


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("kind", ["pair", "nested", "growing", "small", "owned"])
def test_the_batches_of_several_epochs_are_the_same(pinning: None, kind: str, persistent: bool):
    expected = plain(Samples(kind))
    loader = changed(Samples(kind), persistent_workers=persistent)
    for _ in range(3):
        got = list(loader)  # held while the workers go on: nothing of them may be written again
        assert_same(got, expected)
        assert kind == "owned" or not_shared(got)


@pytest.mark.parametrize("prefetch", [1, 2, 4])
@pytest.mark.parametrize("persistent", [False, True])
def test_an_epoch_left_in_the_middle_does_no_harm(pinning: None, persistent: bool, prefetch: int):
    expected = plain(Samples("pair"), 2)
    loader = changed(Samples("pair"), 2, persistent_workers=persistent, prefetch_factor=prefetch)
    for stop in (1, 7, 12, len(expected)):
        got = []
        for batch in loader:
            got.append(batch)
            if len(got) == stop:
                break
        assert_same(got, expected[:stop])


def test_a_slow_loop_gets_the_same_batches(pinning: None):
    expected = plain(Samples("pair"), 2)
    for got, one in zip(changed(Samples("pair"), 2), expected, strict=True):
        time.sleep(0.01)  # the workers run as far ahead as they are allowed to
        assert_same(got, one)


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_that_are_not_forked(pinning: None, method: str):
    expected = plain(Samples("nested", 12))
    assert_same(list(changed(Samples("nested", 12), multiprocessing_context=method)), expected)


def test_a_sample_that_fails_is_told_and_the_rest_go_on(pinning: None):
    expected = plain(Samples("pair"), 2)
    iterator = iter(changed(Samples("failing"), 2))
    before = [next(iterator) for _ in range(5)]
    with pytest.raises(ValueError, match="broken file"):
        next(iterator)
    assert_same([*before, *iterator], expected[:5] + expected[6:])


def test_outside_a_worker_it_is_torchs_own_collation(gpu: None):
    arguments = dict(USUAL)
    BatchMemory().loader(arguments)
    samples = [Samples("nested")[n] for n in range(4)]
    assert_same(arguments["collate_fn"](samples), default_collate(samples))


# -- in the same memory --------------------------------------------------------------------------------------------


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Counts shared memory of a MiB and more: made in the (forked) workers, and mapped here."""
    counts = multiprocessing.Array("i", 2)
    make, mapped = torch.UntypedStorage._new_shared, torch.UntypedStorage._new_shared_fd_cpu

    def count(number: int, size: int) -> None:
        with counts.get_lock():
            counts[number] += size >= 2**20

    def new_shared(cls: Any, size: int, *, device: Any = "cpu") -> Any:
        count(0, size)
        return make(size, device=device)

    def new_shared_fd(cls: Any, fd: int, size: int) -> Any:
        count(1, size)
        return mapped(fd, size)

    monkeypatch.setattr(torch.UntypedStorage, "_new_shared", classmethod(new_shared))
    monkeypatch.setattr(torch.UntypedStorage, "_new_shared_fd_cpu", classmethod(new_shared_fd))
    return counts


def run_epochs(loader: Any, epochs: int = 2) -> None:
    for _ in range(epochs):
        for _ in loader:
            pass


def test_memory_is_made_and_mapped_once_per_slot(pinning: None, made: Any):
    run_epochs(changed(Samples("nested"), persistent_workers=True))
    assert list(made) == [3 * 2 * 3] * 2  # slots, workers, large tensors in a batch


def test_a_plain_loader_makes_and_maps_new_memory_for_every_batch(pinning: None, made: Any):
    run_epochs(DataLoader(Samples("nested"), 4, num_workers=2, persistent_workers=True, pin_memory=True))
    assert list(made) == [2 * 12 * 3] * 2


def test_slots_that_grew_are_not_kept_mapped(pinning: None, monkeypatch: pytest.MonkeyPatch):
    most = []
    keep = batch_memory._keep_mapped

    def keep_and_count(tensors: list[torch.Tensor], slots: int) -> None:
        keep(tensors, slots)
        most.append(len(batch_memory._of_this_thread.mappings or ()))

    monkeypatch.setattr(batch_memory, "_keep_mapped", keep_and_count)
    run_epochs(changed(Samples("growing"), persistent_workers=True), 3)
    assert most
    assert max(most) <= 3 * 2


def test_without_room_memory_is_made_as_ever(pinning: None, made: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(batch_memory, "_room_for", lambda size: False)
    expected = plain(Samples("pair"))
    assert_same(list(changed(Samples("pair"))), expected)
    assert made[0] == len(expected)


def test_file_descriptors_are_not_used_up(gpu: None):
    arguments = {**USUAL, "num_workers": 16, "prefetch_factor": 4}
    BatchMemory().loader(arguments)
    assert arguments["collate_fn"].most_tensors * 16 * 5 <= 256


def test_copies_get_more_threads_and_nobody_else_does():
    before, numbers = torch.get_num_threads(), []

    def ours() -> None:
        batch_memory._copy_with(3)
        numbers.append(torch.get_num_threads())

    def later() -> None:
        numbers.append(torch.get_num_threads())

    for function in (later, ours, later):
        thread = threading.Thread(target=function)
        thread.start()
        thread.join()
    assert numbers[1] == 3
    assert numbers[0] == numbers[2]
    assert torch.get_num_threads() == before


# -- whole scripts -------------------------------------------------------------------------------------------------

SCRIPT = """
import json, torch
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    model = torch.nn.Linear(65536, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    rows = torch.randn(256, 65536, generator=torch.Generator().manual_seed(1))
    loader = DataLoader(TensorDataset(rows, torch.arange(256)), 8, num_workers=2, **METHOD)
    losses, labels, pinned = [], [], True
    for epoch in range(3):
        for step, (row, label) in enumerate(loader):
            pinned = pinned and row.is_pinned() and not row.is_shared()
            loss = model(row.to(device, non_blocking=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
            labels.append(int(label[0]))
            if epoch == 0 and step == 10:
                break
    print(json.dumps({"losses": torch.stack(losses).tolist(), "labels": labels, "pinned": pinned}))
"""


def script_with(method: str) -> str:
    """Spawned workers import torch anew: they are kept between epochs."""
    return SCRIPT.replace("METHOD", repr({"multiprocessing_context": method, "persistent_workers": method == "spawn"}))


def test_without_a_gpu_a_script_runs_as_ever_and_is_told_why(tmp_path: Path):
    done = run_with(script_with("fork"), ["batch_memory"], tmp_path, CUDA_VISIBLE_DEVICES="")
    assert done.told == {
        "batch_memory": "without a GPU batches are not pinned, and the script itself holds the shared memory"
    }
    assert done.printed["labels"] == [*range(0, 88, 8), *range(0, 256, 8), *range(0, 256, 8)]


STAND_IN = """
import torch
for name, answer in {"is_available": True, "current_accelerator": torch.device("cuda"), "current_device_index": 0,
                     "set_device_index": None}.items():
    setattr(torch.accelerator, name, lambda *_, answer=answer: answer)
torch.cuda.is_available = lambda: True
torch.Tensor.pin_memory = torch.Tensor.clone
torch.Tensor.is_pinned = lambda tensor: not tensor.is_shared()
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_whole_script_with_a_stand_in_for_pinning(tmp_path: Path, method: str):
    script = STAND_IN + script_with(method).replace('"cuda" if torch.cuda.is_available() else "cpu"', '"cpu"')
    done = run_with(script, ["batch_memory"], tmp_path / "with", CUDA_VISIBLE_DEVICES="")
    without = run_with(script, [], tmp_path / "without", CUDA_VISIBLE_DEVICES="")
    assert done.told["batch_memory"].startswith("applied: every worker writes its batches into the same shared memory")
    assert done.printed["losses"] == without.printed["losses"]
    assert done.printed["labels"] == without.printed["labels"]
    assert done.printed["pinned"]


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_on_a_gpu_the_losses_stay_the_same_and_batches_are_pinned(tmp_path: Path, method: str):
    script = script_with(method)
    done = run_with(script, ["batch_memory"], tmp_path / "with")
    without = run_with(script, [], tmp_path / "without")
    assert done.told["batch_memory"].startswith("applied: every worker writes its batches into the same shared memory")
    assert done.printed["losses"] == without.printed["losses"]
    assert done.printed["labels"] == without.printed["labels"]
    assert done.printed["pinned"]


def test_the_changes_that_it_depends_on_come_first():
    assert PRACTICE.order > 20  # workers, prefetch and pin_memory
