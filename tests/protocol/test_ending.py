"""Why a run ended travels as a kind and a sentence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.protocol.ending import Ended, Ending


@given(st.builds(Ended, st.sampled_from(Ending), st.text()))
def test_it_survives_the_file(ended: Ended):
    assert Ended.from_text(ended.to_text()) == ended


@pytest.mark.parametrize("text", ["", "the time was over", "{}", '{"kind": "odd", "text": ""}', '{"kind": "timeout"}'])
def test_what_is_no_ending_is_refused(text: str):
    with pytest.raises(ValueError, match=r".+"):
        Ended.from_text(text)
