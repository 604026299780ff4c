"""Communication by dimension, on the terminal and on the page."""

from __future__ import annotations

from report.made import in_terminal, made_measurement

from vivace.records.measurement import Exchange
from vivace.report.measurement_sections import measurement_sections
from vivace.report.terminal import measurement_view

BOTH = (
    Exchange(dimension="tensor", calls_per_step=29, mib_per_step=0.5, exposed_ms_per_step=6.25),
    Exchange(dimension="data", exposed_ms_per_step=2.0),
)


def test_the_terminal_has_a_line_for_it():
    shown = in_terminal(measurement_view(made_measurement(exchanges=BOTH), "x"), width=200)
    assert "exposed per step: tensor 6.2 ms (29 messages, 0.5 MiB), data 2.0 ms" in shown
    assert "by dimension" not in in_terminal(measurement_view(made_measurement(), "x"), width=200)


def test_the_page_has_a_row_for_each():
    page = "".join(measurement_sections(made_measurement(exchanges=BOTH), "x"))
    assert '<td class="name">tensor</td>' in page
    assert "29 messages, 0.5 MiB" in page
    assert "by dimension of the layout" not in "".join(measurement_sections(made_measurement(), "x"))
