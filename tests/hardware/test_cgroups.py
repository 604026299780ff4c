"""Control groups, made up in a folder: the tightest limit on the way to the root counts."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vivace.hardware.cgroups import (
    Limits,
    limits_of,
    own_limits,
    parse_cfs_quota,
    parse_cpu_max,
    parse_memberships,
    parse_memory_limit,
)

# A slow machine is no failure.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("text", "cores"),
    [
        ("max 100000", None),
        ("150000 100000\n", 1.5),
        ("400000 100000", 4.0),
        ("", None),
        (None, None),
        ("x y", None),
    ],
)
def test_cpu_max_of_version_2(text, cores):
    assert parse_cpu_max(text) == cores


@pytest.mark.parametrize(
    ("quota", "period", "cores"),
    [
        ("-1", "100000", None),
        ("250000\n", "100000\n", 2.5),
        ("0", "100000", None),
        ("5", "0", None),
        (None, "1", None),
    ],
)
def test_cfs_quota_of_version_1(quota, period, cores):
    assert parse_cfs_quota(quota, period) == cores


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("max", None),
        ("9223372036854771712", None),
        ("8589934592\n", 2**33),
        ("", None),
        (None, None),
        ("-1", None),
    ],
)
def test_memory_limit(text, limit):
    assert parse_memory_limit(text) == limit


@unhurried
@given(quota=st.integers(1_000, 10**8), period=st.integers(1_000, 10**6))
def test_both_versions_say_the_same(quota, period):
    assert parse_cpu_max(f"{quota} {period}") == parse_cfs_quota(str(quota), str(period)) == quota / period


def test_memberships_of_a_hybrid_system():
    text = "4:memory:/slurm/job_7\n3:cpu,cpuacct:/slurm/job_7/step:0\n0::/init.scope\nnonsense\n"
    paths = parse_memberships(text)
    assert paths["memory"] == "/slurm/job_7"
    assert paths["cpu"] == paths["cpuacct"] == "/slurm/job_7/step:0"
    assert paths[""] == "/init.scope"


def test_version_2_takes_the_tightest_ancestor(tmp_path):
    write(
        tmp_path,
        {
            "slurm/cpu.max": "300000 100000",
            "slurm/memory.max": str(2**34),
            "slurm/job/cpu.max": "max 100000",
            "slurm/job/memory.max": str(2**35),
            "other/cpu.max": "100000 100000",
        },
    )
    assert limits_of("0::/slurm/job\n", tmp_path) == Limits(cpu_cores=3.0, memory_bytes=2**34)


def test_version_1_with_separate_mounts(tmp_path):
    write(
        tmp_path,
        {
            "cpu,cpuacct/slurm/job/cpu.cfs_quota_us": "150000",
            "cpu,cpuacct/slurm/job/cpu.cfs_period_us": "100000",
            "cpu,cpuacct/cpu.cfs_quota_us": "-1",
            "cpu,cpuacct/cpu.cfs_period_us": "100000",
            "memory/slurm/job/memory.limit_in_bytes": str(2**33),
            "memory/memory.limit_in_bytes": "9223372036854771712",
        },
    )
    membership = "5:cpu,cpuacct:/slurm/job\n4:memory:/slurm/job\n"
    assert limits_of(membership, tmp_path) == Limits(cpu_cores=1.5, memory_bytes=2**33)


def test_in_a_container_the_hosts_path_is_not_there_and_the_root_counts(tmp_path):
    write(tmp_path, {"cpu.max": "200000 100000", "memory.max": "max"})
    assert limits_of("0::/../../docker/abc\n", tmp_path) == Limits(cpu_cores=2.0)


def test_no_control_groups_no_limits(tmp_path):
    assert limits_of("", tmp_path) == Limits()


def test_own_limits_are_positive_or_none():
    limits = own_limits()
    assert limits.cpu_cores is None or limits.cpu_cores > 0
    assert limits.memory_bytes is None or limits.memory_bytes > 0
