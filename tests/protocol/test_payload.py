"""What a process saw arrives as it was sent, or is refused by name."""

from __future__ import annotations

import json
import math
from dataclasses import MISSING, fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.protocol.ending import Ended, Ending
from vivace.protocol.payload import (
    Clock,
    Payload,
    SeenCeiling,
    SeenDevice,
    SeenEnergy,
    SeenFlops,
    SeenMemory,
    SeenProcess,
    SeenSupply,
    SeenValidation,
    Series,
    Status,
)
from vivace.protocol.progress import SeenProgress
from vivace.protocol.version import PROTOCOL, ProtocolError

NUMBERS = st.floats(allow_nan=False)
COUNTS = st.integers(0, 2**62)
FACTS = st.dictionaries(
    st.text(),
    st.recursive(st.none() | st.booleans() | COUNTS | NUMBERS | st.text(), lambda s: st.lists(s), max_leaves=4),
)
SERIES = st.builds(Series, st.lists(NUMBERS), st.dictionaries(st.text(), st.lists(NUMBERS)))
PAYLOADS = st.builds(
    Payload,
    status=st.sampled_from(Status),
    ended=st.none() | st.builds(Ended, st.sampled_from(Ending), st.text()),
    clock=st.sampled_from(Clock),
    process=st.builds(SeenProcess, host=st.text(), cuda=st.none() | st.text(), seed=st.none() | COUNTS, flags=FACTS),
    devices=st.lists(st.builds(SeenDevice, st.text(), st.text(), NUMBERS, COUNTS, st.text()), max_size=3),
    series=SERIES,
    host_series=st.none() | SERIES,
    losses=st.lists(st.none() | NUMBERS),
    gradient_norms=st.dictionaries(COUNTS.map(str), NUMBERS),
    supply=st.builds(
        SeenSupply, st.none() | COUNTS, st.none() | COUNTS, st.none() | COUNTS, st.booleans(), st.none() | NUMBERS
    ),
    validation=st.builds(SeenValidation, NUMBERS, COUNTS, COUNTS, NUMBERS),
    flops=st.none() | st.builds(SeenFlops, COUNTS, COUNTS, by_type=st.dictionaries(st.text(), COUNTS)),
    ceiling=st.none() | st.builds(SeenCeiling, st.text(), st.none() | NUMBERS),
    memory=st.none() | st.builds(SeenMemory, st.lists(FACTS, max_size=2), FACTS),
    energy=st.none() | st.builds(SeenEnergy, NUMBERS, NUMBERS, COUNTS, NUMBERS, st.none() | NUMBERS, st.text()),
    profile=st.none() | FACTS,
    loaders=st.lists(FACTS, max_size=2),
)


@given(PAYLOADS)
def test_a_payload_survives_the_file(payload: Payload):
    assert Payload.from_json(json.loads(payload.to_text())) == payload


def test_every_field_has_a_default():
    """So that adding one is a line in the protocol and a line on either side."""
    assert all(one.default is not MISSING or one.default_factory is not MISSING for one in fields(Payload))
    assert Payload.from_json({"version": PROTOCOL}) == Payload()


def test_losses_that_are_not_finite_arrive():
    payload = Payload.from_json(json.loads(Payload(losses=[math.nan, math.inf, None]).to_text()))
    assert math.isnan(payload.losses[0])  # type: ignore[arg-type]
    assert payload.losses[1:] == [math.inf, None]


def test_a_setting_of_the_users_may_be_numpys_or_anything():
    class Odd:
        def __deepcopy__(self, memo: Any) -> Any:
            raise RuntimeError("not to be copied")

        def __str__(self) -> str:
            return "odd"

    sent = Payload(loaders=[{"num_workers": np.int64(4), "batch_size": Odd()}])
    assert Payload.from_json(json.loads(sent.to_text())).loaders == [{"num_workers": 4, "batch_size": "odd"}]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"version": PROTOCOL + 1}, f"protocol {PROTOCOL + 1}, and this vivace reads protocol {PROTOCOL}"),
        ({"version": None}, "protocol None"),
        ({"rank": "0"}, "Payload.rank is '0', which is no int"),
        ({"rank": True}, "Payload.rank is True"),
        ({"surprise": 1}, "Payload has no surprise"),
        ({"status": "fine"}, "Payload.status is 'fine', which is no Status"),
        ({"devices": [{"name": "H200"}, {"name": None}]}, r"Payload.devices\[1\].name is None"),
        ({"series": {"step": [1.0, "2"]}}, r"Payload.series.step\[1\] is '2'"),
        ({"ceiling": {"tflops": 1.0}}, "Payload.ceiling: .*arithmetic"),
    ],
)
def test_what_has_another_shape_is_refused_by_name(change: dict[str, Any], says: str):
    with pytest.raises(ProtocolError, match=says):
        Payload.from_json({"version": PROTOCOL, **change})


@given(st.builds(SeenProgress, COUNTS, st.text(), COUNTS, st.none() | COUNTS, COUNTS))
def test_progress_survives_the_file(progress: SeenProgress):
    assert SeenProgress.from_text(progress.to_text()) == progress


@pytest.mark.parametrize("text", ["", "[]", '{"rank": 0, "odd": 1}'])
def test_what_is_no_progress_is_refused(text: str):
    with pytest.raises(ValueError, match=r".+"):
        SeenProgress.from_text(text)
