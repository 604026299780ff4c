"""What a study in Ray needs to know before Ray runs: where it is, and what one must say to start it."""

from __future__ import annotations

import importlib.util
import socket
from collections.abc import Callable

import pytest
from conftest import Done

from vivace.errors import UserError
from vivace.hpo.outcome import Ended, Outcome
from vivace.hpo.ray_tune.cluster import Allocation, allocation_here, free_port
from vivace.hpo.ray_tune.node import ray_start
from vivace.hpo.ray_tune.results import outcome_in


def test_an_allocation_is_read_from_slurm() -> None:
    inside = {"SLURM_JOB_ID": "17", "SLURM_JOB_NODELIST": "node[1-3]", "SLURMD_NODENAME": "node2"}
    assert allocation_here(inside) == Allocation("17", ("node1", "node2", "node3"), 1)
    assert allocation_here({}) is None


def test_a_login_node_is_no_place_for_the_driver() -> None:
    elsewhere = {"SLURM_JOB_ID": "17", "SLURM_JOB_NODELIST": "node[1-3]", "SLURMD_NODENAME": "login"}
    with pytest.raises(UserError, match="login is not a node of job 17"):
        allocation_here(elsewhere)


def test_the_port_follows_from_the_job_and_avoids_one_that_is_taken() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        first = free_port("123456", "127.0.0.1")
        assert 30000 + 123456 % 2000 <= first < 30000 + 123456 % 2000 + 20
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", first))
        taken.listen()
        assert first < free_port("123456", "127.0.0.1") < first + 20


def test_only_the_head_chooses_its_address() -> None:
    head = ray_start(True, "10.0.0.1", 30017, "/tmp/x", 2, 4, "ray")
    other = ray_start(False, "10.0.0.1", 30017, "/tmp/x", 2, 4, "ray")
    assert {"--head", "--node-ip-address=10.0.0.1", "--port=30017"} < set(head)
    assert "--address=10.0.0.1:30017" in other
    assert "--head" not in other
    assert {"--num-cpus=2", "--num-gpus=4", "--block"} < set(head) & set(other)


def test_an_outcome_survives_the_flattening_of_ray() -> None:
    outcome = Outcome(Ended.COMPLETE, value=0.5, seconds=3.0, readings=6, exit_code=0)
    flat = {f"outcome/{key}": value for key, value in outcome.as_attribute().items()}
    assert outcome_in({"reading": 6, **flat}) == outcome
    assert outcome_in({"reading": 6}) is None


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="Ray is installed here")
def test_without_ray_the_answer_is_how_to_get_it(vivace_here: Callable[..., Done]) -> None:
    words = ("hpo", "--engine", "ray", "--param", "x=log(1,2)", "--metric", "min a", "--", "true", "{x}")
    assert "pip install 'vivace[ray]'" in vivace_here(*words).err
