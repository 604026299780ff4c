"""What is asked of a process arrives as it was asked, or is refused."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.hardware.catalogue import find_gpu, known_gpus, load_catalogue
from vivace.protocol.gpu_names import KnownGpu, find_by_name
from vivace.protocol.request import Entry, ProcessRequest
from vivace.protocol.version import PROTOCOL, ProtocolError

TEXTS = st.lists(st.text(), max_size=3).map(tuple)
REQUESTS = st.builds(
    ProcessRequest,
    folder=st.text(),
    entry=st.sampled_from(Entry),
    warmup_steps=st.none() | st.integers(0),
    seed_offset=st.none() | st.integers(),
    practices=TEXTS,
    strict=st.booleans(),
    known_gpus=st.lists(st.builds(KnownGpu, TEXTS, TEXTS, TEXTS), max_size=3).map(tuple),
)


@given(REQUESTS)
def test_a_request_survives_the_environment(request: ProcessRequest):
    assert ProcessRequest.from_text(request.to_text()) == request


def test_a_request_of_another_version_is_refused():
    text = replace(ProcessRequest("runs/x"), protocol=PROTOCOL + 1).to_text()
    with pytest.raises(ProtocolError, match=f"asked in protocol {PROTOCOL + 1}, and this vivace speaks {PROTOCOL}"):
        ProcessRequest.from_text(text)
    with pytest.raises(ProtocolError, match="asked in protocol None"):
        ProcessRequest.from_text(json.dumps({"folder": "runs/x"}))


@pytest.mark.parametrize(
    "name",
    ["NVIDIA H200", "Tesla V100-SXM2-16GB", "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "a100", "GTX 9", ""],
)
def test_the_process_finds_the_gpu_that_the_catalogue_finds(name: str):
    spec, known = find_gpu(name), find_by_name(name, known_gpus())
    assert (spec is None) == (known is None)
    if spec is not None and known is not None:
        assert known.names[0] == spec.key
        assert known.arithmetics == tuple(spec.dense_peak_tflops)


def test_every_gpu_of_the_catalogue_is_found_by_its_own_name():
    for spec in load_catalogue().gpus.values():
        assert find_gpu(spec.name) == spec


def test_the_last_pattern_wins_and_an_exact_name_before_it():
    first, last = KnownGpu(("a",), ("NVIDIA X*",)), KnownGpu(("b",), ("X1*",))
    assert find_by_name("X100", (first, last)) is last
    assert find_by_name("NVIDIA X2", (first, last)) is first
    assert find_by_name(" A ", (first, last)) is first
    assert find_by_name("Y", (first, last)) is None
