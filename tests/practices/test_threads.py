"""CPU threads: found when they are far from the cores a process may use; set whatever the script says."""

from __future__ import annotations

from pathlib import Path

import pytest
from practices.changed import run_with
from practices.evidence import CPU, measurement, spread

from vivace.errors import UserError
from vivace.practices.engine.registry import parse_words
from vivace.practices.threads import find
from vivace.records.measurement import Rank


def ranks(count: int) -> tuple[Rank, ...]:
    return tuple(Rank(rank=i, host="here", device="cpu", step_ms=spread(100), phases_ms={}) for i in range(count))


def test_found_when_one_thread_computes_on_eight_cores():
    found = find(measurement(on_gpu=False, structure={"threads": 1}))
    assert found is not None
    assert found.exposed_ms == pytest.approx(90 * (1 - 1 / 8))  # forward and backward at eight times the speed
    assert found.setting == "threads=8"


def test_found_when_a_container_leaves_two_of_sixteen_cores():
    cpu = CPU.model_copy(update={"physical_cores": 16, "logical_cores": 16, "quota_cores": 2.0, "usable_cores": 2.0})
    found = find(measurement(on_gpu=False, cpu=cpu, structure={"threads": 16}))
    assert found is not None
    assert found.exposed_ms == pytest.approx(90 * (1 - 2 / 16))
    assert found.setting == "threads=2"
    assert "16 threads take turns on 2 cores" in found.says


def test_ranks_of_a_host_share_its_cores():
    assert find(measurement(on_gpu=False, structure={"threads": 4}, ranks=ranks(2))) is None
    found = find(measurement(on_gpu=False, structure={"threads": 1}, ranks=ranks(2)))  # as torchrun sets it
    assert found is not None
    assert found.setting == "threads=4"


@pytest.mark.parametrize(
    "present",
    [
        {"structure": {"threads": 8}},
        {"structure": {"threads": 6}},
        {"structure": {"threads": 1}, "on_gpu": True},
        {  # two hardware threads a core share its arithmetic units: torch's own choice is right
            "structure": {"threads": 8},
            "cpu": CPU.model_copy(update={"logical_cores": 16, "affinity_cores": 16, "usable_cores": 16}),
        },
    ],
)
def test_not_found_when_they_agree(present: dict):
    assert find(measurement(**{"on_gpu": False, **present})) is None


def test_a_wrong_number_is_the_users_mistake():
    with pytest.raises(UserError, match="'many' is not a number of threads"):
        parse_words("threads=many")


SCRIPT = """
import json, os, torch
SETUP
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(3):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
print(json.dumps([torch.get_num_threads(), len(os.sched_getaffinity(0))]))
"""


@pytest.mark.parametrize("setup", ["", "torch.set_num_threads(5)"])
def test_torch_uses_as_many_as_asked(setup: str, tmp_path: Path):
    done = run_with(SCRIPT.replace("SETUP", setup), ["threads=3"], tmp_path, OMP_NUM_THREADS="1")
    assert done.told == {"threads=3": "applied: 3 threads"}
    assert done.printed[0] == 3


def test_without_a_number_it_takes_the_cores_of_the_process(tmp_path: Path):
    done = run_with(SCRIPT.replace("SETUP", "torch.set_num_threads(7)"), ["threads"], tmp_path)
    threads, cores = done.printed
    assert threads == cores
