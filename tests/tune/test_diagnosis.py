"""From evidence to ranked findings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from practices.evidence import measurement

from vivace.practices.engine.practice import Saved
from vivace.records.finding import Finding, Place, Risk
from vivace.records.measurement import Measurement, Mfu, Sync
from vivace.records.structure import Spot
from vivace.tune.candidates import candidates, combined, proposals
from vivace.tune.checking import findings_of
from vivace.tune.diagnosis import (
    diagnose,
    is_recommended,
    likely_of,
    likely_together,
    together,
    worth_alone,
    worth_of,
)  # fmt: skip
from vivace.tune.probing import Causes

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
    assert [f.likely for f in findings] == sorted((f.likely for f in findings), reverse=True)
    workers = next(f for f in findings if f.practice == "workers")
    assert workers.exposed_ms == pytest.approx(41.0)
    assert workers.evidence["loader_wait_ms"] == pytest.approx(41.0)
    assert workers.applies
    assert workers.setting.startswith("workers=")


def test_findings_together_are_worth_at_least_the_best_of_them():
    findings = diagnose(waiting_for_data())
    assert together(findings, waiting_for_data()) >= max(f.worth for f in findings)
    assert together((), waiting_for_data()) == 1.0


def test_idle_time_is_won_once():
    """Reading values and launching kernels leave the GPU idle at the same time."""
    sync = Sync(file="train.py", line=9, code="loss.item()", per_step=3.0)
    idle = measurement(roles={"matmul": 20.0, "elementwise": 40.0}, syncs=(sync,))
    findings = [f for f in diagnose(idle) if f.practice in ("compile", "no_syncs")]
    assert [round(f.idle_ms, 6) for f in findings] == [40.0, 40.0]
    # Of 100 ms, 40 are idle and three quarters of 40 can be fused away.
    assert together(findings, idle) == pytest.approx(100 / (100 - 40 - 30))


def test_all_together_leave_the_arithmetic_at_the_peak():
    """In TF32 at 0.6 of its peak: bf16 has twice the peak, so no more than 2 / 0.6 can be won."""
    slow = measurement(flops={"tf32": 10**12}, roles={"matmul": 50.0, "elementwise": 40.0})
    findings = [f for f in diagnose(slow) if f.practice in ("bf16", "compile")]
    # 10 ms idle; of 90 ms bf16 takes at most 50 away and compiling three quarters of 40.
    assert together(findings, slow) == pytest.approx(100 / (100 - 10 - 90 * (1 - (1 - 50 / 90) * (1 - 30 / 90))))
    peak = Mfu(value=0.6, hfu=0.6, peak_tflops=494.7, arithmetic="tf32", against="H200 SXM dense tf32 peak (catalogue)")
    assert together(findings, slow.model_copy(update={"mfu_detail": peak})) == pytest.approx(2 / 0.6, rel=1e-3)


RECORDS = [
    json.loads(line)
    for line in (Path(__file__).parents[2] / "benchmarks/results/price_measurements.jsonl").read_text().splitlines()
]


def recorded() -> list[Measurement]:
    """Planted defects on an H200 and on a CPU: anomaly detection, syncs, biases, a noisy host, …"""
    return [Measurement.model_validate(line["measurement"]) for line in RECORDS]


def test_of_recorded_jobs_all_together_never_take_the_whole_step():
    """A product of bounds left less than a fiftieth of the step in five of nineteen, and "50.0×" was shown."""
    for record in recorded():
        findings = [finding for finding in diagnose(record) if is_recommended(finding)]
        bound, likely = together(findings, record), likely_together(findings, record)
        assert max(finding.worth for finding in findings) <= bound < 49.0
        assert 1.0 <= likely <= bound


def test_where_bounds_compete_for_more_than_a_step_the_largest_is_said():
    (slow,) = [f for f in diagnose(waiting_for_data()) if f.practice == "workers"]
    greedy = [
        slow.model_copy(update={"practice": name, "exposed_ms": 174.0, "idle_ms": 0.0, "worth": 30.0, "likely": 2.0})
        for name in ("debug_off", "no_grad_validation")
    ]
    assert together(greedy, waiting_for_data()) == 30.0


def test_bf16_is_no_advice_where_steps_are_bound_by_launches():
    """Networks of 64 channels on an H200, measured: 0.80× and 0.85× (price_gains.csv)."""
    priced = {
        (record.clock, name): finding.likely
        for record, name in zip(recorded(), [line["job"] for line in RECORDS], strict=True)
        for finding in diagnose(record)
        if finding.practice == "bf16"
    }
    assert priced["gpu", "convnet_small"] == pytest.approx(0.854, rel=0.25)
    assert priced["gpu", "convnet"] == pytest.approx(0.795, rel=0.25)
    assert max(likely for (clock, _), likely in priced.items() if clock == "gpu") < 1.0
    assert priced["host", "mlp_small"] < 1.0  # 0.98× measured
    assert priced["host", "convnet_small"] == pytest.approx(1.248, rel=0.25)


def test_a_single_finding_leaves_the_arithmetic_at_the_peak():
    """All but 4 ms of 100 wait for the host. At a fifth of the peak, 20 ms of arithmetic are left; on a CPU, whose peak
    is measured beside whatever else runs, a third of that."""
    sync = Sync(file="train.py", line=9, code="loss.item()", per_step=3.0)
    idle = measurement(roles={"matmul": 4.0}, flops={"bf16": 10**12}, syncs=(sync,))
    (alone,) = (f for f in diagnose(idle) if f.practice == "no_syncs")
    assert alone.worth == pytest.approx(25)
    peak = Mfu(value=0.2, hfu=0.2, peak_tflops=989.5, arithmetic="bf16", against="H200 SXM dense bf16 peak (catalogue)")
    found = diagnose(idle.model_copy(update={"mfu_detail": peak}))
    (alone,) = (f for f in found if f.practice == "no_syncs")
    assert alone.worth == pytest.approx(5)
    assert alone.likely_high <= 5
    assert together(found, idle.model_copy(update={"mfu_detail": peak})) == pytest.approx(5)
    on_cpu = waiting_for_data().model_copy(update={"clock": "host", "mfu_detail": peak})
    assert worth_alone("workers", 179.0, on_cpu) == pytest.approx(15)
    assert worth_alone("threads", 179.0, on_cpu) == worth_of(179.0, 180.0)  # changes the peak itself


def test_of_two_number_types_one_is_taken():
    slow = measurement(flops={"fp32": 10**12}, roles={"matmul": 90.0})
    findings = diagnose(slow)
    assert {f.practice for f in findings} >= {"bf16", "tf32"}
    bf16 = [f for f in findings if f.practice != "tf32"]
    assert together(findings, slow) == together(bf16, slow)


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


def test_every_finding_has_a_likely_speedup_within_its_bound():
    for finding in diagnose(waiting_for_data()):
        assert finding.likely_low <= finding.likely <= finding.likely_high <= finding.worth + 1e-9


@given(worth=st.floats(1, 50), ms=st.tuples(st.floats(-50, 200), st.floats(-50, 200), st.floats(-50, 200)))
def test_likely_is_ordered_and_never_above_the_bound(worth: float, ms: tuple[float, float, float]):
    low_ms, middle_ms, high_ms = sorted(ms)
    likely, low, high = likely_of(Saved(middle_ms, low_ms, high_ms), worth, 100.0)
    assert 0 < low <= likely <= high <= worth * (1 + 1e-9)


def test_a_finding_of_an_older_record_is_likely_to_bring_half_of_its_bound():
    finding = diagnose(waiting_for_data())[0].model_dump()
    for name in ("likely", "likely_low", "likely_high"):
        del finding[name]
    old = Finding.model_validate({**finding, "worth": 2.0})
    assert (old.likely, old.likely_low, old.likely_high) == (pytest.approx(4 / 3), 1.0, 2.0)


COPY = Sync(file="train.py", line=9, code="noise = torch.randn(64).to(device)", per_step=1.0)
READ = Sync(file="train.py", line=12, code="print(loss.item())", per_step=1.0)


def made_on_the_host(*syncs: Sync):
    spot = Spot(file="train.py", line=9, code=COPY.code, copies=1, mib=64.0, made_ms=8.0)
    copy = {"kind": "Memcpy HtoD (Pageable -> Device)", "per_step": 1.0, "ms_per_step": 6.0, "mib_per_step": 64.0}
    return measurement(
        roles={"matmul": 40.0}, structure={"host_made": (spot,)}, profile={"copies": (copy,)}, syncs=syncs,
        phases={"copy": 6.0, "forward": 40.0, "backward": 54.0},
    )  # fmt: skip


def test_a_copy_that_waits_is_one_finding_that_names_both():
    found = {f.practice: f for f in diagnose(made_on_the_host(COPY))}
    assert "no_syncs" not in found
    assert found["tensors_on_device"].also == ("no_syncs",)


def test_a_value_that_is_read_is_a_finding_beside_the_copy():
    found = {f.practice: f for f in diagnose(made_on_the_host(COPY, READ))}
    assert found["tensors_on_device"].also == ()
    assert found["no_syncs"].where == Place(file="train.py", line=12)


def test_a_copy_that_waits_is_found_where_no_other_practice_sees_it():
    found = {f.practice: f for f in diagnose(measurement(roles={"matmul": 40.0}, syncs=(COPY,)))}
    assert found["no_syncs"].where == Place(file="train.py", line=9)


def launch_bound(**fields):
    """A small network on an H200: of 4 ms the GPU computes for 0.6, and the host never waits for it."""
    return measurement(
        step_ms=4.0, flops={"fp32": 2 * 10**9}, structure={"conv_weights_channels_last": 0.0},
        roles={"convolution": 0.3, "matmul": 0.1, "norm": 0.1, "elementwise": 0.1}, **fields,
    )  # fmt: skip


def test_where_the_host_is_the_limit_less_work_for_the_gpu_is_no_advice():
    findings = findings_of(launch_bound(), Causes(), "x")
    on_the_gpu = {"bf16", "tf32", "fp16", "channels_last", "tensor_core_sizes", "cudnn_benchmark"}
    assert not on_the_gpu & {f.practice for f in findings.findings}
    assert {"bf16", "channels_last"} <= {f.practice for f in findings.unlikely}
    assert all(f.likely < 1.005 for f in findings.unlikely)
    assert findings.findings[0].practice == "compile"  # fewer launches are what helps


def test_what_a_tune_may_try_is_not_narrowed_by_what_is_recommended():
    assert "bf16" in candidates(diagnose(launch_bound()), launch_bound(), SAFE)


def test_the_likely_speedup_of_all_is_between_the_best_and_the_bound():
    for job in (waiting_for_data(), launch_bound(), measurement(flops={"fp32": 10**12}, roles={"matmul": 90.0})):
        found = diagnose(job)
        best = max((f.likely for f in found), default=1.0)
        assert max(1.0, best) - 1e-9 <= likely_together(found, job) <= together(found, job) + 1e-9
    assert likely_together((), waiting_for_data()) == 1.0


def test_the_bound_of_all_leaves_the_time_that_no_finding_explains():
    """Each finding could take 60 of 100 ms away. If nothing explains 40 ms, two of them cannot take more than 60."""
    slow = measurement(flops={"fp32": 10**12}, roles={"matmul": 90.0})
    found = [f.model_copy(update={"exposed_ms": 60.0, "worth": 2.5}) for f in diagnose(slow) if f.practice != "tf32"]
    assert together(found, slow, unexplained_ms=40.0) == pytest.approx(2.5)
    assert together(found, slow) > 2.5
