"""A verdict accounts for the time: what was lost and no finding explains is said, and such a job is not "tuned"."""

from __future__ import annotations

from pathlib import Path

import pytest
from practices.evidence import measurement
from practices.loaders import loader
from report.made import in_terminal

from vivace.practices.engine.probed import Probed
from vivace.records.finding import Findings
from vivace.records.measurement import AllocatorUse, Inputs, Sync
from vivace.records.trial import Trial
from vivace.report.findings_view import findings_view
from vivace.report.run_folder import RunFolder
from vivace.report.run_page import run_page
from vivace.tune.accounting import UNEXPLAINED_SHARE
from vivace.tune.checking import findings_of
from vivace.tune.probing import Cause, Causes, probe, probes_for

TUNED = {"flags": {"compiled": True, "float32_matmul_precision": "high"}, "structure": {"autocast": "bfloat16"}}
SYNC = Sync(file="/home/me/train.py", line=9, code="if loss.isnan():", per_step=1.0)


def idle(ms: float, **fields):
    """A compiled bf16 job with a step of 100 ms, of which the GPU computes all but ``ms``."""
    return measurement(roles={"matmul": 100.0 - ms}, **{**TUNED, **fields})


def test_a_job_that_spends_its_time_computing_is_tuned():
    findings = findings_of(idle(3.0), Causes(), "m.json")
    assert (findings.verdict, findings.unexplained, findings.left) == ("tuned", None, 1.0)


def test_idle_time_that_nothing_explains_is_said_with_what_is_known():
    job = idle(40.0, profile={"idle_during_ms": {"forward": 30.0, "other": 10.0}})
    findings = findings_of(job, Causes(), "m.json")
    assert findings.verdict == "unexplained"
    assert findings.findings == ()
    assert findings.unexplained is not None
    assert findings.unexplained.ms == pytest.approx(40.0)
    assert findings.unexplained.share == pytest.approx(0.4)
    assert findings.unexplained.known == (
        "the GPU has nothing to do for 40.0 of 100.0 ms; it waits 30.0 ms for launches of the forward, 10.0 ms for "
        "what the script does between the parts of a step",
    )
    assert findings.left == pytest.approx(100 / 60)


def test_the_share_decides():
    assert findings_of(idle(100 * UNEXPLAINED_SHARE - 1), Causes(), "m.json").verdict == "tuned"
    assert findings_of(idle(100 * UNEXPLAINED_SHARE + 1), Causes(), "m.json").verdict == "unexplained"


def test_what_a_finding_explains_is_not_said_again():
    """Uncompiled: launches explain the idle time."""
    findings = findings_of(measurement(roles={"matmul": 60.0}), Causes(), "m.json")
    assert "compile" in [f.practice for f in findings.findings]
    assert (findings.verdict, findings.unexplained) == ("improvable", None)


def test_a_wait_that_a_finding_of_the_loader_explains_is_not_said_again():
    slow = measurement(phases={"loader": 41.0}, roles={"matmul": 59.0}, loaders=(loader(num_workers=0),), **TUNED)
    data = Cause("data", 41.0, "with the same batch again …")
    findings = findings_of(slow, Causes((data,), Probed(same_batch_ms=59.0)), "m.json")
    assert (findings.verdict, findings.unexplained) == ("improvable", None)


def test_what_a_probe_showed_and_no_finding_explains_is_said():
    """A loader that is waited for, with as many workers as there are cores: nothing to propose, but not tuned."""
    job = idle(2.0)
    data = Cause("data", 62.5, "with the same batch again a step takes 37.5 ms, not 100.0: loading costs 62.5 ms")
    findings = findings_of(job, Causes((data,), Probed(same_batch_ms=37.5)), "m.json")
    assert findings.verdict == "unexplained"
    assert findings.unexplained is not None
    assert findings.unexplained.ms == pytest.approx(62.5)
    assert findings.unexplained.known == (data.says,)


def test_communication_that_nothing_explains_is_said():
    findings = findings_of(idle(2.0), Causes((Cause("communication", 30.0, "without gradient exchange …"),)), "m.json")
    assert findings.unexplained is not None
    assert findings.unexplained.ms == pytest.approx(32.0)  # with 2 of idle time


def test_an_interrupted_or_partial_run_is_not_judged():
    partial = idle(40.0).model_copy(update={"status": "partial"})
    findings = findings_of(partial, Causes(), "m.json")
    assert (findings.verdict, findings.unexplained) == ("unknown", None)


def test_shapes_allocator_and_lines_are_part_of_what_is_known():
    job = idle(
        40.0,
        input_shapes=38,
        inputs=Inputs(repeats=(2, *(1,) * 38), new=39, elements=1000.0, squares=1.2e6),
        allocator=AllocatorUse(steps=40, device_allocs=0),
        syncs=(SYNC,),
        flags={**TUNED["flags"], "cudnn_benchmark": True},
    )
    unexplained = findings_of(job, Causes((Cause("data", 80.0, "with the same batch …"),)), "m.json").unexplained
    assert unexplained is not None
    known = " | ".join(unexplained.known)
    assert "inputs had 39 shapes in 40 steps, 39 of them never seen before while cuDNN's autotuner is on" in known
    assert "the host waits for the GPU at train.py:9 `if loss.isnan():`" in known


def test_the_terminal_and_the_page_say_it():
    job = idle(62.0)
    findings = findings_of(job, Causes(), "m.json")
    shown = in_terminal(findings_view(findings, job))
    assert "Well tuned" not in shown
    assert "\nnot explained: 62 of 100 ms per step\n  the GPU has nothing to do for 62.0 of 100.0 ms\n" in shown
    page = run_page(RunFolder(folder=Path("runs/x-001"), findings=findings, measurement=job))
    assert "Not explained: 62 of 100 ms per step." in page
    assert "cannot be called tuned" in page


def test_the_record_comes_back_from_json():
    findings = findings_of(idle(62.0), Causes(), "m.json")
    assert Findings.from_json(findings.to_json()) == findings


# -- differential runs ---------------------------------------------------------------------------------------------


def trial(word: str, step_ms: float, **fields) -> Trial:
    return Trial(
        name="001", practices=(word,), outcome="ok", seconds=1.0, measurement=measurement(step_ms=step_ms, **fields),
        command=("python", "train.py"),
    )  # fmt: skip


def test_the_first_batch_stands_for_the_mean_one_by_its_size():
    """It holds half of the elements of a mean batch: what it takes is doubled before it is compared."""
    job = idle(60.0, loaders=(loader(),), input_shapes=30, inputs=Inputs(repeats=(1,) * 40, new=40, elements=2000.0))
    short = {"inputs": Inputs(repeats=(15,), elements=1000.0)}
    causes = probe(job, lambda word: trial(word, 20.0, **short))
    assert causes.probed.same_batch_ms == pytest.approx(40.0)
    (data,) = [cause for cause in causes.told if cause.name == "data"]
    assert data.exposed_ms == pytest.approx(60.0)
    assert "loading and new shapes cost 60.0 ms" in data.says


def test_a_longer_first_batch_is_taken_as_it_is():
    job = idle(60.0, loaders=(loader(),), input_shapes=30, inputs=Inputs(repeats=(1,) * 40, new=40, elements=2000.0))
    causes = probe(job, lambda word: trial(word, 20.0, inputs=Inputs(repeats=(15,), elements=4000.0)))
    assert causes.probed.same_batch_ms == pytest.approx(20.0)


def test_with_attention_work_grows_with_the_square():
    structure = {"attention": {"scaled_dot_product_flash_attention": 12}}
    inputs = Inputs(repeats=(1,) * 40, new=40, elements=2000.0, squares=9e6)
    job = idle(60.0, loaders=(loader(),), input_shapes=30, inputs=inputs, structure=structure)
    causes = probe(job, lambda word: trial(word, 10.0, inputs=Inputs(repeats=(15,), elements=1500.0, squares=2.25e6)))
    assert causes.probed.same_batch_ms == pytest.approx(40.0)


def test_gradients_exchanged_more_than_once_a_step_are_worth_a_probe():
    wrapper = {"wrappers": ({"name": "DistributedDataParallel"},)}
    assert probes_for(measurement(structure=wrapper, gradient_syncs=4.0)) == ("probe:no_gradient_sync",)
    assert probes_for(measurement(structure=wrapper, gradient_syncs=1.0)) == ()
