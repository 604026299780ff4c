"""Eager PyTorch: bytes counted kernel by kernel, the processor's floor, and the allocator's blocks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from vivace.plan.facts.precision import PRECISIONS
from vivace.plan.images.image_job import VisionJob, vision_memory, vision_step_time
from vivace.plan.images.trace import Operation, TracedModel
from vivace.plan.jobs.job import TransformerJob
from vivace.plan.machines.cluster import machine_from_gpu
from vivace.plan.machines.gpu_names import known_gpu
from vivace.plan.memory.allocator import LossMoment, eager_reserve_bytes
from vivace.plan.memory.peak import memory
from vivace.plan.models.built_in import named_transformer
from vivace.plan.time.eager import layer_traffic, loss_traffic, weight_cast_bytes
from vivace.plan.time.step import step_time
from vivace.records.layout import Layout

GPT = replace(named_transformer("gpt2-124m"), dropout=False)


def on_h200(model, batch, precision, recompute="none"):
    machine = machine_from_gpu(known_gpu("h200"), 1).machine
    layout = Layout(micro_batch=batch, recompute=recompute)
    return TransformerJob(
        model, machine, layout, batch, model.seq_len, PRECISIONS[precision], "torch", "flash", fused_optimizer=True
    )


def small_images(batch, layers):
    """A network of tiny convolutions: nothing but launches."""
    kernels = [Operation("conv", False, 64, 64, 64, 1, 1e4), Operation("norm", True, moved_bytes=1e4)]
    return TracedModel("tiny", batch, 1000, tuple(kernels * layers), 1e6, 1e5, 6e5)


def test_a_gpt_layer_under_autocast_by_hand():
    # Forward: two norms 8 + 8, casts 6 + 6, GELU 4 x 4, residual sums 10 + 10.
    traffic = layer_traffic(GPT, 2, 4, flash=True)
    assert traffic.whole_forward + traffic.split_forward == 64
    # Backward: norms 2 x 20, sums 2 x 12, casts 4 x 6, GELU 24, biases 2 + 2 + 8 + 6, concatenation 12.
    assert traffic.whole_backward + traffic.split_backward == 142


def test_autocast_costs_more_than_pure_16_bit():
    wide, pure = layer_traffic(GPT, 2, 4, flash=True), layer_traffic(GPT, 2, 2, flash=True)
    assert wide.whole_forward > pure.whole_forward
    assert wide.split_forward == pure.split_forward
    assert weight_cast_bytes(2, 4) == 6
    assert weight_cast_bytes(2, 2) == 0


def test_the_loss_of_16_bit_logits_goes_through_fp32():
    assert loss_traffic(2) == (22, 26)
    assert loss_traffic(4) == (16, 20)


def test_a_small_batch_waits_for_the_processor_and_a_large_one_does_not():
    few, many = (step_time(on_h200(GPT, batch, "bf16-amp")) for batch in (1, 32))
    assert few.launch > 0
    assert many.launch == 0


def test_autocast_launches_two_casts_per_weight():
    machine = machine_from_gpu(known_gpu("h200"), 1).machine
    steps = {
        name: vision_step_time(VisionJob(small_images(1, 100), machine, 1, PRECISIONS[name]))
        for name in ("bf16-amp", "fp32")
    }
    assert sum((steps["fp32"].launch, steps["fp32"].compute)) == pytest.approx(200 * 30e-6)
    assert sum((steps["bf16-amp"].launch, steps["bf16-amp"].compute)) == pytest.approx(400 * 30e-6)


def test_gradients_of_images_do_not_exist_at_the_peak():
    machine = machine_from_gpu(known_gpu("h200"), 1).machine
    alone, both = (
        vision_memory(VisionJob(small_images(1, 1), machine, gpus, PRECISIONS["bf16-amp"])) for gpus in (1, 2)
    )
    assert alone.gradients_gib == 0
    assert both.gradients_gib > 0


def test_states_in_16_bit_halve_the_optimizer():
    wide, pure = (step_time(on_h200(GPT, 8, name)) for name in ("bf16-amp", "bf16-pure"))
    assert pure.optimizer == pytest.approx(wide.optimizer / 2)


@pytest.mark.parametrize(
    ("moment", "reserve"),
    [
        (LossMoment(0, 1, 10, 2), 2),  # gradients persist: only the narrow logits are stranded
        (LossMoment(15, 1, 4, 2), 11 + 2),  # what activations leave of freed gradients holds no logits
        (LossMoment(15, 2, 4, 2), 11),  # but a gradient as large as the narrow logits takes them
        (LossMoment(3, 3, 10, 2), 2),
    ],
)
def test_blocks_that_do_not_fit(moment, reserve):
    assert eager_reserve_bytes(moment) == reserve


def test_freed_gradients_are_reserved_beside_the_loss():
    """Measured on an H200: 87.5 GiB reserved, 72.7 of them allocated (benchmarks/results/plan_h200.csv)."""
    model = replace(named_transformer("llama-3-8b"), seq_len=4096, dropout=False)
    need = memory(on_h200(model, 4, "bf16-pure", "full"))
    assert need.reserved_gib == pytest.approx(87.5, rel=0.05)
    assert need.allocated_gib == pytest.approx(72.7, rel=0.05)


def test_a_measurement_of_a_faster_processor_lowers_the_floor():
    job = on_h200(GPT, 1, "bf16-amp")
    slow, fast = step_time(job), step_time(replace(job, compute_scale=0.5))
    assert fast.launch == pytest.approx(slow.launch / 2)
