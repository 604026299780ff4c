"""Options of DDP: found when they cost communication or copies; then the wrapper is made with other options."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import SCRIPTS
from forked.process import PYTHON
from practices.changed import run_ranks
from practices.evidence import measurement

from vivace.practices.ddp_options import PRACTICE, find
from vivace.records.structure import Spot, Wrapper
from vivace.tune.trials import TrialSettings, run_trial


def wrapped(exposed_ms: float = 0.0, parameters: int = 25_000_000, name: str = "DistributedDataParallel", **options):
    usual = {"find_unused_parameters": False, "gradient_as_bucket_view": False, "static_graph": False}
    wrapper = Wrapper(name=name, options={**usual, **options}, where=Spot(file="train.py", line=9))
    return measurement(
        structure={"wrappers": (wrapper,)},
        profile={"communication_exposed_ms_per_step": exposed_ms},
        trainable_parameters=parameters,
        step_ms=100.0,
    )


def test_a_search_for_unused_parameters_that_finds_none():
    found = find(wrapped(8.0, find_unused_parameters=True, unused_parameters=0, gradient_as_bucket_view=True))
    assert found is not None
    assert found.exposed_ms == 8.0
    assert found.setting == "ddp_options=all_used"
    assert found.where == ("train.py", 9)
    assert "every parameter got a gradient" in found.says


def test_with_unused_parameters_it_speaks_of_a_static_graph_and_the_order_of_layers():
    found = find(wrapped(8.0, find_unused_parameters=True, unused_parameters=3, gradient_as_bucket_view=True))
    assert found is not None
    assert found.setting == "ddp_options=static_graph"
    assert "in the order in which the forward calls them" in (found.by_hand or "")


def test_copies_into_buckets_are_priced_by_the_memory_bandwidth():
    found = find(wrapped(parameters=2_000_000_000))
    assert found is not None
    assert found.exposed_ms == pytest.approx(16 * 2e9 / 4.8e12 * 1e3)  # 6.7 ms on an H200
    assert found.setting == "ddp_options=views"


@pytest.mark.parametrize(
    "present",
    [
        wrapped(8.0, parameters=25_000_000),  # exposed, but not by these options; copies take 0.08 ms
        wrapped(8.0, gradient_as_bucket_view=True),
        wrapped(0.1, find_unused_parameters=True, unused_parameters=0, gradient_as_bucket_view=True),
        wrapped(8.0, name="DataParallel", find_unused_parameters=True),
        measurement(),
    ],
)
def test_not_found_when_present_or_of_no_use(present):
    assert find(present) is None


RANKS = """
import json, os, sys, torch
rank = int(os.environ["RANK"])
torch.distributed.init_process_group("gloo", os.environ["MEETING"], rank=rank, world_size=2)
torch.manual_seed(0)
layers = torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
torch.manual_seed(rank)
losses = []
for _ in range(10):
    optimizer.zero_grad()
    loss = model(torch.randn(16, 8)).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(json.dumps({"losses": losses, "view": model.gradient_as_bucket_view, "static": model.static_graph}))
torch.distributed.destroy_process_group()
sys.stdout.flush(); os._exit(0)  # gloo's threads may abort a Python that ends (pytorch issue 190489)
"""


def test_two_ranks_train_with_the_new_options_and_the_same_losses(tmp_path: Path):
    plain = run_ranks(RANKS, [], tmp_path / "plain")[0].printed
    assert (plain["view"], plain["static"]) == (False, False)
    views = run_ranks(RANKS, ["ddp_options"], tmp_path / "views")[0]
    assert views.told == {"ddp_options": "applied: gradient_as_bucket_view=True"}
    assert views.printed == {**plain, "view": True}
    static = run_ranks(RANKS, ["ddp_options=static_graph"], tmp_path / "static")[0]
    assert "static_graph=True" in static.told["ddp_options=static_graph"]
    assert static.printed == {"losses": plain["losses"], "view": True, "static": True}  # other buckets round alike


def test_a_measurement_names_the_options_that_are_in_force(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PYTHON_EXEC", PYTHON)
    (tmp_path / "train.py").write_text(RANKS.replace("range(10)", "range(200)"))
    command = [PYTHON, str(SCRIPTS / "two_ranks.py"), str(tmp_path / "train.py")]
    settings = TrialSettings(steps=4)
    trial = run_trial(command, ["ddp_options"], tmp_path / "trial", settings, lambda *_: None, lambda _: None)
    assert trial.outcome == "ok", trial.message
    (wrapper,) = trial.measurement.structure.wrappers
    assert wrapper.options["gradient_as_bucket_view"] is True
    assert str(trial.measurement.practices["ddp_options"]) == "applied: gradient_as_bucket_view=True"


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        (None, {"gradient_as_bucket_view": True}),
        ("views", {"gradient_as_bucket_view": True}),
        ("all_used", {"gradient_as_bucket_view": True, "find_unused_parameters": False}),
        ("static_graph", {"gradient_as_bucket_view": True, "static_graph": True}),
    ],
)
def test_each_word_sets_its_options(word: str | None, expected: dict):
    assert PRACTICE.change is not None
    arguments = {"find_unused_parameters": True, "gradient_as_bucket_view": False, "static_graph": False}
    PRACTICE.change(word).wrapper(arguments)
    assert {name: arguments[name] for name in expected} == expected


def test_other_words_are_refused():
    assert PRACTICE.change is not None
    with pytest.raises(ValueError, match="is not one of views, all_used, static_graph"):
        PRACTICE.change("faster")
