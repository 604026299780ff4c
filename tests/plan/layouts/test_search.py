"""The search returns legal layouts that fit, best first; sizing, scaling, budgets and calibration build on
it.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from vivace.errors import UserError
from vivace.plan.answering.calibration import calibrate_transformer, read_measurement
from vivace.plan.jobs.layout import check_layout
from vivace.plan.layouts.scaling import default_counts, scaling_curve
from vivace.plan.layouts.search import explain, legal_layouts, pareto, search
from vivace.plan.layouts.sizing import round_up, tensor_core_multiple, transformer_advice
from vivace.plan.machines.cluster import machine_for
from vivace.plan.models.built_in import named_transformer
from vivace.plan.models.usual_batch import default_global_batch
from vivace.plan.time.step import step_time
from vivace.records.layout import Layout


@pytest.fixture
def llama(make_job):
    return make_job("llama-3-8b", global_batch=64, precision="bf16-amp", software="torch", attention="flash")


def test_every_layout_is_legal(llama):
    layouts = list(legal_layouts(llama, 32))
    assert len(layouts) == len(set(layouts)) > 50
    for layout in layouts:
        assert layout.gpus == 32
        check_layout(layout, llama.model, 32, 8, llama.global_batch)


def test_results_fit_and_are_sorted(llama):
    found = search(llama, 32, keep=20)
    seconds = [one.seconds for one in found]
    assert seconds == sorted(seconds)
    assert all(one.memory_gib <= 0.95 * llama.machine.gpu.memory_gib for one in found)


def test_the_runner_up_is_told_why_it_lost(llama):
    best, second = search(llama, 32, keep=2)
    assert "% slower" in explain(best, second)


def test_the_405b_model_is_laid_out_as_its_authors_did(make_job):
    """Llama 3 paper, table 4: tensor 8, pipeline 16, 128 replicas on 16,384 GPUs, 400 TFLOP/s each (41 %
    MFU).
    """
    machine = machine_for("dgx-h100").machine
    job = make_job("llama-3-405b", global_batch=2048, precision="bf16-mixed", software="compiled", attention="flash")
    best = search(replace(job, machine=machine), 16_384, keep=1)[0]
    assert (best.job.layout.tensor, best.job.layout.pipeline) == (8, 16)
    theirs = replace(
        best.job,
        layout=Layout(128, 8, 16, 1, 8, True, 1, 0, 1, "none", "interleaved"),
        software="megatron-core",
    )
    flops = 6 * 405e9 * 2048 * 8192 + 12 * 126 * 16384 * 8192 * 2048 * 8192
    assert flops / step_time(theirs).total / 16_384 / 1e12 == pytest.approx(400, rel=0.10)


def test_a_model_that_fits_nowhere_is_refused_with_a_count_that_would(make_job):
    with pytest.raises(UserError, match="does not fit") as caught:
        search(make_job("gpt-175b", global_batch=8, precision="bf16-mixed"), 8)
    assert "--gpus" in caught.value.hint


def test_no_member_of_the_pareto_set_beats_another(llama):
    front = pareto([one for gpus in (8, 16, 32) for one in search(llama, gpus, keep=5)])
    figures = [(f.seconds_per_sample, f.gpu_seconds_per_sample, f.joules_per_sample) for f in front]
    assert front
    for one in figures:
        assert not any(other != one and all(a <= b for a, b in zip(other, one, strict=True)) for other in figures)


def test_scaling_curves(llama):
    assert default_counts(48, 8) == [8, 16, 32, 48]
    strong = scaling_curve(llama, [8, 16, 32])
    weak = scaling_curve(llama, [8, 16, 32], weak=True)
    assert [point.gpus for point in strong] == [8, 16, 32]
    assert strong[0].efficiency == 1.0
    assert strong[-1].best.seconds < strong[0].best.seconds
    assert weak[-1].best.job.global_batch == 4 * weak[0].best.job.global_batch


def test_vocabulary_advice_is_priced(make_job):
    job = make_job("gpt2-124m", micro_batch=8, precision="bf16-amp", software="compiled", attention="flash")
    advice = transformer_advice(job)
    assert str(advice[0]).startswith("vocabulary 50,257 → 50,304")
    assert advice[0].gain_pct > 3
    padded = replace(job, model=replace(job.model, vocab=50_304))
    assert not any("vocabulary" in one.text for one in transformer_advice(padded))


def test_multiples_of_the_checklists():
    assert [tensor_core_multiple(t) for t in ("tf32", "fp16", "int8")] == [(4, 32), (8, 64), (16, 128)]
    assert round_up(50_257, 64) == 50_304


def test_calibration_reproduces_the_measurement(llama, tmp_path):
    alone = replace(llama, layout=Layout(micro_batch=1), global_batch=1)
    path = tmp_path / "measurement.json"
    slow = 1.3 * step_time(alone).total * 1e3
    path.write_text(
        json.dumps({"step_ms": {"median": slow + 5}, "batch_size": 1, "phases_ms": {"loader": {"median": 5}}})
    )
    job = calibrate_transformer(alone, read_measurement(path))
    assert job.compute_scale == pytest.approx(1.3)
    assert job.loader_ms == 5
    assert step_time(replace(job, loader_ms=0)).compute == pytest.approx(1.3 * step_time(alone).compute)


def test_a_measurement_of_something_else_is_refused(llama, tmp_path):
    path = tmp_path / "measurement.json"
    path.write_text(json.dumps({"step_ms": {"median": 1e9}, "batch_size": 1}))
    with pytest.raises(UserError, match="not the same model"):
        calibrate_transformer(llama, read_measurement(path))
    path.write_text("{}")
    with pytest.raises(UserError, match="step_ms"):
        read_measurement(path)


def test_a_slow_loader_is_exposed_only_beyond_the_compute(llama):
    alone = replace(llama, layout=Layout(micro_batch=1), global_batch=1)
    busy = step_time(alone).total * 1e3
    assert step_time(replace(alone, loader_ms=0.5 * busy)).loader == 0
    assert step_time(replace(alone, loader_ms=busy + 100)).loader == pytest.approx(0.1, rel=0.3)


def test_a_small_model_on_one_node_is_replicated_not_cut_up(make_job):
    """GPT-2 124M fits an A100 many times over: no layout can beat eight replicas."""
    model = named_transformer("gpt2-124m")
    batch = default_global_batch(model, 8)
    assert batch == 512
    best = search(make_job("gpt2-124m", global_batch=batch, software="torch"), 8)[0].job.layout
    assert (best.data, best.tensor, best.pipeline) == (8, 1, 1)
