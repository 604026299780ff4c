"""``vivace.distributed``: idr_torch's answers under Slurm, torchrun and alone."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import environment
from forked import process
from hypothesis import given
from hypothesis import strategies as st

from vivace import distributed
from vivace.distributed import expand_counts, expand_nodelist, port_of_job, world

# As Slurm 22.05 sets it in rank 5 of `srun -N2 --ntasks-per-node=4`.
SLURM = {
    "SLURM_JOB_ID": "1234567",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "5",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_NTASKS": "8",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_STEP_TASKS_PER_NODE": "4(x2)",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_CPUS_PER_TASK": "10",
    "SLURM_STEP_GPUS": "0,1,2,3",
    "SLURM_STEP_NODELIST": "jean-zay-ia[801-802]",
    "SLURM_JOB_NODELIST": "jean-zay-ia[800-802]",
}
TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "none",
    "RANK": "3",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "4",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "localhost",
    "MASTER_PORT": "29500",
}


def test_under_srun():
    here = world(SLURM)
    assert (here.launcher, here.rank, here.local_rank, here.world_size, here.local_world_size) == ("slurm", 5, 1, 8, 4)
    assert (here.num_nodes, here.cpus, here.gpu_ids) == (2, 10, (0, 1, 2, 3))
    assert here.nodelist == ["jean-zay-ia801", "jean-zay-ia802"]
    assert (here.master_addr, here.master_port, here.is_master) == ("jean-zay-ia801", 24567, False)


def test_under_torchrun_also_when_torchrun_runs_under_srun():
    for variables in (TORCHRUN, {**SLURM, **TORCHRUN}):
        here = world(variables)
        assert (here.launcher, here.rank, here.local_rank, here.world_size) == ("torchrun", 3, 1, 4)
        assert (here.local_world_size, here.num_nodes, here.master_port) == (2, 2, 29500)


def test_alone_and_in_a_batch_script_that_is_no_step():
    for variables in ({}, {"SLURM_JOB_ID": "12", "SLURM_NTASKS": "8"}):
        here = world(variables)
        assert (here.launcher, here.rank, here.world_size, here.is_master) == ("single", 0, 1, True)
        assert here.nodelist == [socket.gethostname()]


def test_names_of_idr_torch(monkeypatch: pytest.MonkeyPatch):
    for name, value in SLURM.items():
        monkeypatch.setenv(name, value)
    assert (distributed.rank, distributed.size, distributed.world_size) == (5, 8, 8)
    assert distributed.hostnames == distributed.nodelist == ["jean-zay-ia801", "jean-zay-ia802"]
    assert not distributed.is_master
    assert "rank     5 of 8 (local 1 of 4)" in distributed.summary()
    with pytest.raises(AttributeError):
        _ = distributed.ranks


def test_a_single_process_gets_a_group_of_one_that_ends_after_its_models(tmp_path: Path):
    program = """
import gc, weakref, torch, torch.distributed as dist
from vivace import distributed
distributed.destroy_process_group()  # there is none
distributed.init_process_group(); distributed.init_process_group()
x = torch.ones(1); dist.all_reduce(x)
print(dist.get_world_size(), x.item(), distributed.device)
gc.disable()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
model.circle, kept = [model], weakref.ref(model)
del model
destroy = dist.destroy_process_group
dist.destroy_process_group = lambda: (print(kept()), destroy())
distributed.destroy_process_group()
print(dist.is_initialized())
"""
    (tmp_path / "train.py").write_text(program)
    done = process.run([sys.executable, "train.py"], tmp_path, environment(), 600)
    assert done.stdout.split() == ["1", "1.0", str(distributed.device), "None", "False"], done.stderr


def test_node_lists():
    assert expand_nodelist("Node[1-3],Node7") == ["Node1", "Node2", "Node3", "Node7"]
    assert expand_nodelist("a[009-011,20]b") == ["a009b", "a010b", "a011b", "a20b"]
    assert expand_nodelist("localhost") == ["localhost"]
    assert expand_counts("2,4(x3)") == [2, 4, 4, 4]


@given(st.integers(0, 10**9))
def test_the_port_is_one_that_a_user_may_open(job: int):
    assert 10000 <= port_of_job(str(job)) < 30000


def test_the_names_that_the_course_imports():
    root = Path(__file__).parents[2]
    program = """import idr_torch, idr_pytools
from idr_torch import local_rank
print(idr_torch.rank, local_rank, idr_torch.size, idr_torch.hostnames, idr_pytools.search_log(contains=[123457]))"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment(PYTHONPATH=f"{root / 'shims'}:{root}", **SLURM),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.stdout == "5 1 8 ['jean-zay-ia801', 'jean-zay-ia802'] []\n", done.stderr
