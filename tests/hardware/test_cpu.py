"""Made-up processors, and the law that the lowest limit on cores counts."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vivace.hardware import cpu
from vivace.hardware.cgroups import Limits
from vivace.hardware.cpu import parse_cpuinfo, read_cpu, usable_cores

# A slow machine is no failure.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

CASCADE_LAKE = """processor\t: 0
vendor_id\t: GenuineIntel
model name\t: Intel(R) Xeon(R) Gold 6248 CPU  @ 2.50GHz
flags\t\t: fpu sse2 avx avx2 avx512f avx512_vnni

processor\t: 1
model name\t: another
flags\t\t: fpu
"""
SAPPHIRE_RAPIDS = "model name : Xeon 8468\nflags : avx2 avx512f avx512_bf16 amx_bf16 amx_tile\n"
LAPTOP = "model name : Core i7-8650U\nflags : avx avx2\n"
GRACE = "processor\t: 0\nFeatures\t: fp asimd sve svebf16 bf16 i8mm\nCPU implementer\t: 0x41\n"


@pytest.mark.parametrize(
    ("text", "model", "avx2", "avx512", "amx", "bf16"),
    [
        (CASCADE_LAKE, "Intel(R) Xeon(R) Gold 6248 CPU @ 2.50GHz", True, True, False, False),
        (SAPPHIRE_RAPIDS, "Xeon 8468", True, True, True, True),
        (LAPTOP, "Core i7-8650U", True, False, False, False),
        (GRACE, None, False, False, False, True),
        ("", None, None, None, None, None),
    ],
)
def test_model_and_abilities(text, model, avx2, avx512, amx, bf16, monkeypatch, tmp_path):
    path = tmp_path / "cpuinfo"
    path.write_text(text)
    monkeypatch.setattr(cpu, "Path", lambda _: path)
    monkeypatch.setattr("platform.processor", lambda: "")
    missing: list[str] = []
    found = read_cpu(Limits(), missing)
    assert found.model == model
    assert (found.has_avx2, found.has_avx512, found.has_amx, found.has_bf16) == (avx2, avx512, amx, bf16)
    assert any("model of the CPU" in sentence for sentence in missing) == (model is None)
    assert any("abilities" in sentence for sentence in missing) == (bf16 is None)


def test_the_first_processor_counts():
    assert "avx512f" in parse_cpuinfo(CASCADE_LAKE).flags


@unhurried
@given(st.text())
def test_any_text_is_parsed(text):
    info = parse_cpuinfo(text)
    assert info.model is None or info.model.strip()


@unhurried
@given(
    logical=st.none() | st.integers(1, 512),
    affinity=st.none() | st.integers(1, 512),
    quota=st.none() | st.floats(0.01, 512),
)
def test_usable_cores_is_the_lowest_known_limit(logical, affinity, quota):
    cores = usable_cores(logical, affinity, quota)
    known = [limit for limit in (logical, affinity, quota) if limit is not None]
    assert all(cores <= limit for limit in known)
    assert cores in known if known else cores == 1.0


def test_a_quota_lowers_what_is_usable(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(4)), raising=False)
    monkeypatch.setattr("psutil.cpu_count", lambda logical: 64 if logical else 32)
    found = read_cpu(Limits(cpu_cores=2.5), [])
    assert (found.usable_cores, found.affinity_cores, found.quota_cores) == (2.5, 4, 2.5)
    assert (found.logical_cores, found.physical_cores) == (64, 32)
    assert read_cpu(Limits(), []).usable_cores == 4.0
