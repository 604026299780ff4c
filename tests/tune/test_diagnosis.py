"""From evidence to ranked findings."""

from __future__ import annotations

import pytest
from practices.evidence import measurement

from vivace.records.finding import Risk
from vivace.tune.candidates import candidates, combined, proposals
from vivace.tune.diagnosis import diagnose, together, worth_of

SAFE = (Risk.EXACT, Risk.ROUNDING)


def waiting_for_data():
    loader = {
        "batch_size": 64, "num_workers": 0, "pin_memory": False, "persistent_workers": False, "prefetch_factor": None,
        "iterable": False,
    }  # fmt: skip
    return measurement(step_ms=180.0, phases={"loader": 41.0, "forward": 40.0, "backward": 99.0}, loaders=(loader,))


def test_the_price_is_amdahls():
    assert worth_of(41.0, 180.0) == pytest.approx(180 / 139)
    assert worth_of(0.0, 180.0) == 1.0
    assert worth_of(500.0, 180.0) <= 50.0


def test_findings_are_ranked_and_name_their_evidence():
    findings = diagnose(waiting_for_data())
    assert [f.worth for f in findings] == sorted((f.worth for f in findings), reverse=True)
    workers = next(f for f in findings if f.practice == "workers")
    assert workers.exposed_ms == pytest.approx(41.0)
    assert workers.evidence["loader_wait_ms"] == pytest.approx(41.0)
    assert workers.applies
    assert workers.setting.startswith("workers=")


def test_findings_together_are_worth_more_than_each_and_less_than_their_product():
    findings = diagnose(waiting_for_data())
    both = together(findings, 180.0)
    assert both >= max(f.worth for f in findings)


def test_nothing_measured_nothing_found():
    assert diagnose(measurement().model_copy(update={"step_ms": None})) == ()


def test_what_compiles_is_tried_last_and_exclusions_are_kept():
    found = waiting_for_data()
    words = candidates(diagnose(found), found, SAFE)
    assert words[0].startswith("workers=")
    assert combined(("bf16",), "workers=2") == ("workers=2", "bf16")
    assert combined(("workers=2",), "workers=4") == ("workers=4",)
    assert combined(("bf16", "compile"), "compile=reduce-overhead") == ("bf16", "compile=reduce-overhead")


def test_what_only_a_person_can_do_is_proposed():
    findings = diagnose(waiting_for_data())
    assert proposals(findings, [f.setting for f in findings], SAFE) == ()
