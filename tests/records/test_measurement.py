"""A measurement's figures are numbers; losses may be anything that a training can reach."""

from __future__ import annotations

import math
import re

import pytest
from report.made import made_measurement

from vivace.records.base import RecordError
from vivace.records.measurement import Measurement


@pytest.mark.parametrize("value", ["NaN", "1e999", '"Infinity"'])
@pytest.mark.parametrize("field", ["median", "samples_per_s"])
def test_a_time_or_rate_that_is_no_number_is_damage(field: str, value: str):
    text = re.sub(rf'"{field}": [\d.]+', f'"{field}": {value}', made_measurement().to_json(), count=1)
    with pytest.raises(RecordError, match=rf"is damaged: .*{field}: Input should be a finite number"):
        Measurement.from_json(text)


def test_a_loss_may_be_no_number():
    record = made_measurement(losses=(1.0, math.nan, math.inf))
    assert math.isnan(Measurement.from_json(record.to_json()).losses[1])
