"""Non-blocking copies: found when the host waits for copies of pinned batches; only those are then queued."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from practices.changed import needs_gpu, run_with
from practices.evidence import measurement, spread
from practices.loaders import loader

from vivace.practices.engine.change import NotApplicable
from vivace.practices.non_blocking import NonBlocking, find
from vivace.records.measurement import Copies

PINNED = Copies(kind="Memcpy HtoD (Pinned -> Device)", per_step=2, ms_per_step=6.0, mib_per_step=294.0)
PAGEABLE = PINNED.model_copy(update={"kind": "Memcpy HtoD (Pageable -> Device)"})
BLOCKING = {
    "phases": {"copy": 7.0},
    "host_phases_ms": {"copy": spread(20.0)},  # the host waits for the copy, and for all work queued before it
    "profile": {"copies": (PINNED,)},
    "loaders": (loader(pin_memory=True),),
}


def test_found_when_the_host_waits_for_copies_of_pinned_memory():
    found = find(measurement(**BLOCKING))
    assert found is not None
    assert found.exposed_ms == 7.0
    assert found.evidence == {"copy_ms": 7.0, "host_waits_for_copies_ms": 20.0, "pinned_mib_per_step": 294.0}


@pytest.mark.parametrize(
    "present",
    [
        {"host_phases_ms": {"copy": spread(0.1)}},  # queued: the host is back at once
        {"host_phases_ms": {}},
        {"profile": {"copies": (PAGEABLE,)}},  # pinned memory comes first
        {"loaders": (loader(),)},
        {"phases": {"copy": 0.3}},
        {"on_gpu": False},
    ],
)
def test_not_found_when_present_or_of_no_use(present: dict):
    assert find(measurement(**{**BLOCKING, **present})) is None


@pytest.fixture
def with_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda self: self.numel() > 1)


def test_only_what_a_loader_handed_out_and_pinned_is_queued(with_gpu: None):
    change = NonBlocking()
    batch = {"image": torch.ones(4), "rows": [torch.ones(2, 2)], "scalar": torch.ones(1)}
    (taken,) = change.iterator(SimpleNamespace(pin_memory=True), iter([batch]))
    assert taken is batch
    queued = {}
    for name, tensor in {
        "image": batch["image"], "part of a batch": batch["rows"][0][:, :1], "not pinned": batch["scalar"],
        "a buffer of the script's own": torch.ones(4),
    }.items():  # fmt: skip
        arguments: dict = {}
        change.copy(tensor, arguments)
        queued[name] = arguments.get("non_blocking", False)
    assert queued == {
        "image": True, "part of a batch": True, "not pinned": False, "a buffer of the script's own": False,
    }  # fmt: skip
    assert change.done == "copies of pinned batches to the GPU do not block the host"


def test_a_batch_that_is_gone_is_forgotten(with_gpu: None):
    change = NonBlocking()
    batches = change.iterator(SimpleNamespace(pin_memory=True), iter([torch.ones(n) for n in (4, 5, 6)]))
    for batch in batches:
        del batch
    assert sum(ref() is not None for ref in change.handed_out.values()) == 0


def test_a_loader_that_does_not_pin_is_told_what_is_missing(with_gpu: None):
    with pytest.raises(NotApplicable, match="ask for pin_memory too"):
        NonBlocking().iterator(SimpleNamespace(pin_memory=False), iter([]))


SCRIPT = """
import json, torch
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    model = torch.nn.Linear(256, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    rows = torch.randn(64, 256, generator=torch.Generator().manual_seed(1))
    loader = DataLoader(TensorDataset(rows), 8, num_workers=2, pin_memory=torch.cuda.is_available())
    losses = []
    for (row,) in loader:
        loss = model(row.to(device)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    print(json.dumps(torch.stack(losses).tolist()))
"""


def test_without_a_gpu_it_says_so(tmp_path: Path):
    done = run_with(SCRIPT, ["non_blocking"], tmp_path, CUDA_VISIBLE_DEVICES="")
    assert done.told == {"non_blocking": "there is no GPU to copy to"}


@pytest.mark.gpu
@needs_gpu
def test_on_a_gpu_the_losses_stay_the_same_and_workers_live(tmp_path: Path):
    done = run_with(SCRIPT, ["non_blocking"], tmp_path / "with")
    plain = run_with(SCRIPT, [], tmp_path / "without")
    assert done.told == {"non_blocking": "applied: copies of pinned batches to the GPU do not block the host"}
    assert done.printed == plain.printed
