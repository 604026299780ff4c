"""ddp_no_sync: gradients of DDP are exchanged once per step, and are the same mean; found and priced by how often."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import SCRIPTS
from forked.process import PYTHON
from practices.changed import run_ranks
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
import contextlib, json, os, sys
import torch, torch.distributed as dist
from torch.nn.utils import clip_grad_norm_
from torch.utils.data import DataLoader, TensorDataset

exchanges, own_reduce = 0, dist.all_reduce
def all_reduce(*args, **kwargs):
    global exchanges
    exchanges += 1
    return own_reduce(*args, **kwargs)
dist.all_reduce = all_reduce

rank, mode = int(os.environ["RANK"]), MODE
dist.init_process_group("gloo", os.environ["MEETING"], rank=rank, world_size=2)
torch.manual_seed(0)
layers = torch.nn.Linear(8, 32), torch.nn.BatchNorm1d(32), torch.nn.ReLU(), torch.nn.Linear(32, 4)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
drawn = torch.Generator().manual_seed(rank)
data = TensorDataset(torch.randn(88, 8, generator=drawn), torch.randint(0, 4, (88,), generator=drawn))
norms = []
for epoch in range(EPOCHS):
    loader = DataLoader(data, 4)  # 22 batches: two are left over
    for i, (inputs, labels) in enumerate(loader, start=1):
        last = i % 4 == 0 or (mode == "flush" and i == len(loader)) or (mode == "early" and i == 10)
        with model.no_sync() if mode == "own" and not last else contextlib.nullcontext():
            loss = torch.nn.functional.cross_entropy(model(inputs), labels) / 4
            exchanges += model.require_backward_grad_sync
            loss.backward()
        if last:
            norms.append(float(clip_grad_norm_(model.parameters(), 0.5)))
            optimizer.step()
            optimizer.zero_grad()
print(json.dumps({"norms": norms, "exchanges": exchanges}))
dist.destroy_process_group()
sys.stdout.flush(); os._exit(0)  # gloo's threads may abort a Python that ends (pytorch issue 190489)
"""
APPLIED = "gradients are exchanged in the last backward pass of a step"


def script(mode: str, epochs: int) -> str:
    return SCRIPT.replace("MODE", repr(mode)).replace("EPOCHS", str(epochs))


@pytest.mark.parametrize(("mode", "exchanges"), [("carry", 12 + 3 * 14), ("flush", 4 * 12), ("early", 76)])
def test_two_ranks_get_the_same_gradients_with_fewer_exchanges(mode: str, exchanges: int, tmp_path: Path):
    """``carry``: batches that are left over at an epoch's end belong to the next step. ``flush``: they make a step of
    their own, of two passes. ``early``: a step ends after two passes for a reason of the script's own.

    All passes of two steps of four are exchanged before one exchange is taken to be enough, and again after every step
    of another length. In ``flush`` an epoch is 4 + 4 + 1 + 1 + 1 exchanges and 1 at its last batch.
    """
    plain = run_ranks(script(mode, 4), [], tmp_path / "plain")[0].printed
    done = run_ranks(script(mode, 4), ["ddp_no_sync"], tmp_path / "changed")[0]
    assert done.told == {"ddp_no_sync": f"applied: {APPLIED}"}
    assert done.printed["norms"] == pytest.approx(plain["norms"], rel=1e-5)
    assert plain["exchanges"] == 4 * 22
    assert done.printed["exchanges"] == exchanges


def trial(folder: Path, mode: str, *words: str):
    folder.mkdir()
    path = folder / "script.py"
    path.write_text(script(mode, 8))
    command = [PYTHON, str(SCRIPTS / "two_ranks.py"), str(path)]
    done = run_trial(command, words, folder / "run", TrialSettings(steps=14), lambda *_: None, lambda _: None)
    assert done.outcome == "ok", done.message
    assert done.measurement is not None
    return done.measurement


def test_a_measurement_counts_the_exchanges_and_sees_the_same_losses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PYTHON_EXEC", PYTHON)
    plain = trial(tmp_path / "plain", "carry")
    changed = trial(tmp_path / "changed", "carry", "ddp_no_sync")
    assert changed.trajectory == pytest.approx(plain.trajectory, rel=1e-5)
    assert plain.gradient_syncs is not None
    assert changed.gradient_syncs is not None
    assert plain.gradient_syncs > 3
    assert changed.gradient_syncs < plain.gradient_syncs - 1
    assert changed.practices["ddp_no_sync"].text == APPLIED


def test_a_script_that_does_it_itself_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PYTHON_EXEC", PYTHON)
    record = trial(tmp_path / "own", "own", "ddp_no_sync")
    assert record.practices["ddp_no_sync"].text.startswith("the script chooses itself")
    assert find(record) is None


def test_the_lines_by_hand_name_no_sync():
    assert "model.no_sync()" in PRACTICE.by_hand
