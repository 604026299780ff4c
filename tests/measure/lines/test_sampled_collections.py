"""Garbage collections that the script asks for, as a sample sees them."""

from __future__ import annotations

import sys
from types import FrameType

from vivace.measure.inside.lines.sampler import LineSampler
from vivace.measure.inside.lines.samples import look


def test_a_collection_that_the_user_asks_for_is_not_charged_to_our_callback() -> None:
    stacks = []

    def on_call(frame: FrameType, event: str, _arg: object) -> None:
        if event == "call" and frame.f_code is LineSampler._on_collection.__code__:
            stacks.append(look(frame))

    sampler = LineSampler()
    sys.setprofile(on_call)
    try:
        sampler._on_collection("stop", {})
    finally:
        sys.setprofile(None)
    assert [(stack.ours, stack.code and stack.code.co_name) for stack in stacks] == [
        (False, "test_a_collection_that_the_user_asks_for_is_not_charged_to_our_callback")
    ]
