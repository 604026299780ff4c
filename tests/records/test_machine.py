"""The machine record: immutable, strict, and the same after a trip through JSON."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from vivace.records.base import RecordError
from vivace.records.machine import Cpu, Gpu, Machine

# A slow machine is no failure.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

positive = st.floats(0.001, 1e6)
words = st.text(min_size=1, max_size=8)


def optional(strategy):
    return st.none() | strategy


cpus = st.builds(
    Cpu,
    model=optional(words),
    architecture=words,
    physical_cores=optional(st.integers(1, 512)),
    quota_cores=optional(positive),
    usable_cores=positive,
    has_bf16=optional(st.booleans()),
)
gpus = st.builds(
    Gpu,
    index=st.integers(0, 15),
    name=words,
    uuid=optional(words),
    memory_gib=positive,
    power_limit_w=optional(positive),
    nvlink_active_links=optional(st.integers(0, 36)),
    dense_peak_tflops=st.dictionaries(st.sampled_from(["fp16", "bf16", "fp8"]), positive),
)
machines = st.builds(
    Machine,
    hostname=words,
    os=words,
    python_version=words,
    cpu=cpus,
    memory_gib=positive,
    memory_limit_gib=optional(positive),
    gpus=st.lists(gpus, max_size=3).map(tuple),
    torch_build=optional(words),
    missing=st.lists(words, max_size=3).map(tuple),
)


@unhurried
@given(machines)
def test_json_round_trip(machine):
    again = Machine.from_json(machine.to_json())
    assert again == machine
    assert (again.kind, again.schema_version) == ("machine", 1)


def small() -> Machine:
    cpu = Cpu(architecture="x86_64", usable_cores=2.5)
    return Machine(hostname="n1", os="Linux", python_version="3.12.1", cpu=cpu, memory_gib=16.0)


def test_it_is_saved_and_loaded(tmp_path):
    path = small().save(tmp_path / "machine.json")
    assert Machine.load(path) == small()


def test_it_is_immutable():
    with pytest.raises(ValidationError):
        small().hostname = "n2"


def test_an_unknown_field_is_refused():
    text = small().to_json().replace('"os"', '"operating_system"')
    with pytest.raises(RecordError, match="os"):
        Machine.from_json(text)
