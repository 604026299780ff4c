"""What a trial tells Ray's driver: the names of the fields, known to the trial, the searcher and the scheduler.

Ray asks a trial for results again and again. One without a new reading (``FRESH`` is false) lets the driver end a trial
that says nothing for hours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vivace.hpo.asked import Asked
from vivace.hpo.outcome import Outcome
from vivace.race.targets import Direction

__all__ = ["ENDED", "FRESH", "OUTCOME", "OWN", "READING", "SECONDS", "VALUE", "mode_of", "outcome_in"]

VALUE = "value"
READING = "reading"
"""The number of the reading, from 1: the time of Ray's schedulers."""
FRESH = "fresh"
SECONDS = "seconds"
OUTCOME = "outcome"
"""Of the last result only. Ray flattens dictionaries in results: its fields come back as ``outcome/ended``."""
ENDED = f"{OUTCOME}/ended"
OWN = "vivace"
"""In the configuration of a trial, beside its values: where the study is, and which of its trials this is."""


def outcome_in(result: Mapping[str, Any] | None) -> Outcome | None:
    """None: the trial had not come to its end."""
    if not result or ENDED not in result:
        return None
    prefix = f"{OUTCOME}/"
    return Outcome.of_attribute({key.removeprefix(prefix): result[key] for key in result if key.startswith(prefix)})


def mode_of(asked: Asked) -> str:
    """As Ray says it."""
    return "min" if asked.parsed_goal.direction is Direction.MIN else "max"
