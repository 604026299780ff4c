"""ddp_no_sync: gradients of DDP are exchanged once per step, and are the same mean; found and priced by how often."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from practices.evidence import measurement, spread

from vivace.practices.ddp_no_sync import PRACTICE, find, find_probed
from vivace.practices.engine.probed import Probed
from vivace.tune.trials import TrialSettings, run_trial

WRAPPED = {"wrappers": ({"name": "DistributedDataParallel", "where": {"file": "train.py", "line": 7}},)}


def accumulating(**fields):
    return measurement(
        **{"structure": WRAPPED, "gradient_syncs": 4.0, "micro_batches": 4.0, "trainable_parameters": 10**9, **fields}
    )


def test_found_with_the_copies_that_three_of_four_exchanges_make():
    """16 bytes a parameter at 4.8 TB/s are 3.33 ms an exchange; of four, three can go."""
    found = find(accumulating())
    assert found is not None
    assert found.exposed_ms == pytest.approx(3 * 16e9 / 4800e6)
    assert found.where == ("train.py", 7)
    assert found.evidence["exchanges_per_step"] == 4.0


def test_a_differential_run_prices_it_better():
    found = find_probed(accumulating(), Probed(no_gradient_sync_ms=80.0))
    assert found is not None
    assert found.exposed_ms == pytest.approx(15.0)  # of 20 ms for four
    assert found.likely is not None
    assert found.likely.ms == pytest.approx(15.0)
    assert find_probed(accumulating(), Probed()) == find(accumulating())


def test_waiting_for_other_ranks_counts_too():
    job = accumulating(on_gpu=False, phases_ms={"communication": spread(40.0)})
    found = find(job)
    assert found is not None
    assert found.exposed_ms == pytest.approx(30.0)


@pytest.mark.parametrize(
    "present",
    [
        {"gradient_syncs": 1.0},  # the script uses no_sync, or does not accumulate
        {"gradient_syncs": None, "structure": {}},
        {"trainable_parameters": 1000},  # costs nothing
    ],
)
def test_not_found_when_present_or_of_no_use(present: dict):
    assert find(accumulating(**present)) is None


def test_options_that_need_every_backward_are_left_to_the_author():
    wrapper = {**WRAPPED["wrappers"][0], "options": {"find_unused_parameters": True}}
    found = find(accumulating(structure={"wrappers": (wrapper,)}))
    assert found is not None
    assert found.why_not == "DDP has find_unused_parameters=True: it must see every backward pass"


# -- applied, over two ranks ---------------------------------------------------------------------------------------

SCRIPT = """
import contextlib, json, pathlib, sys
import torch, torch.distributed as dist
from torch.nn.utils import clip_grad_norm_
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("gloo")
rank, mode = dist.get_rank(), sys.argv[1]
torch.manual_seed(0)
layers = torch.nn.Linear(8, 32), torch.nn.BatchNorm1d(32), torch.nn.ReLU(), torch.nn.Linear(32, 4)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
drawn = torch.Generator().manual_seed(rank)
data = TensorDataset(torch.randn(88, 8, generator=drawn), torch.randint(0, 4, (88,), generator=drawn))
norms = []
for epoch in range(8):
    loader = DataLoader(data, 4)  # 22 batches: two are left over
    for i, (inputs, labels) in enumerate(loader, start=1):
        last = i % 4 == 0 or (mode == "flush" and i == len(loader)) or (mode == "early" and i == 10)
        with model.no_sync() if mode == "own" and not last else contextlib.nullcontext():
            (torch.nn.functional.cross_entropy(model(inputs), labels) / 4).backward()
        if last:
            norms.append(float(clip_grad_norm_(model.parameters(), 0.5)))
            optimizer.step()
            optimizer.zero_grad()
            if rank == 0:
                pathlib.Path("norms.json").write_text(json.dumps(norms))
dist.destroy_process_group()
"""


def trial(folder: Path, mode: str, *words: str):
    """The record, and the norms of the gradients before they were clipped, one for each step."""
    folder.mkdir()
    script = folder / "script.py"
    script.write_text(SCRIPT.replace('"norms.json"', repr(str(folder / "norms.json"))))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script), mode]
    done = run_trial(command, words, folder / "run", TrialSettings(steps=14), lambda *_: None, lambda _: None)
    assert done.outcome == "ok", done.message
    assert done.measurement is not None
    return done.measurement, json.loads((folder / "norms.json").read_text())


@pytest.mark.parametrize("mode", ["carry", "flush", "early"])
def test_two_ranks_get_the_same_gradients_with_fewer_exchanges(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """``carry``: batches that are left over at an epoch's end belong to the next step. ``flush``: they make a step of
    their own, of two passes. ``early``: a step ends after two passes for a reason of the script's own."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    plain, norms = trial(tmp_path / "plain", mode)
    changed, same = trial(tmp_path / "changed", mode, "ddp_no_sync")
    assert same == pytest.approx(norms, rel=1e-5)
    assert changed.trajectory == pytest.approx(plain.trajectory, rel=1e-5)
    assert plain.gradient_syncs is not None
    assert changed.gradient_syncs is not None
    assert plain.gradient_syncs > 3
    assert changed.gradient_syncs < plain.gradient_syncs - (0 if mode == "early" else 1)
    assert changed.practices["ddp_no_sync"].text == "gradients are exchanged in the last backward pass of a step"


def test_a_script_that_does_it_itself_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    record, _ = trial(tmp_path / "own", "own", "ddp_no_sync")
    assert record.practices["ddp_no_sync"].text.startswith("the script chooses itself")
    assert find(record) is None


def test_the_lines_by_hand_name_no_sync():
    assert "model.no_sync()" in PRACTICE.by_hand
