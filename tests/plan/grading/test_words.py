"""Spellings of published tables, and the ones nobody thought of."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.errors import UserError
from vivace.plan.facts.precision import parse_precision
from vivace.plan.grading.words import (
    attention_kind,
    has_out_of_memory,
    network_gb_s_per_gpu,
    number,
    recompute_kind,
    truth,
    zero_stage,
)
from vivace.plan.machines.gpu_names import gpu_from_words, known_gpu


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("176247M", 1.76247e11),
        ("1.3B", 1.3e9),
        ("1.7e9", 1.7e9),
        ("50,304", 50304),
        ("<=1044", 1044),
        ("~135", 135),
        ("18.9 GiB", 18.9),
        ("", None),
        ("N/A", None),
        ("-", None),
        (None, None),
    ],
)
def test_numbers(text, value):
    assert number(text) == (pytest.approx(value) if value is not None else None)


@given(st.text(max_size=30))
def test_no_cell_makes_a_reader_crash(text):
    number(text)
    truth(text)
    zero_stage(text)
    recompute_kind(text)
    attention_kind(text)
    network_gb_s_per_gpu(text, 8)
    gpu_from_words(text)


@pytest.mark.parametrize(
    ("text", "stage"),
    [
        ("FSDP FULL_SHARD", 3),
        ("ZeRO-1 (Megatron-DeepSpeed)", 1),
        ("zero3", 3),
        ("ZeRO stage 2", 2),
        ("SHARD_GRAD_OP", 2),
        ("HSDP", 3),
        ("fsdp2", 3),
        ("distributed optimizer", 1),
        ("DDP torch", 0),
        ("NO_SHARD", 0),
        ("", None),
    ],
)
def test_sharding(text, stage):
    assert zero_stage(text) == stage


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("full (activations-checkpoint-method uniform)", "full"),
        ("True", "full"),
        ("selective (attention core)", "selective"),
        ("selective op", "selective"),
        ("none", "none"),
        ("False", "none"),
        ("no", "none"),
        ("", None),
    ],
)
def test_recomputation(text, kind):
    assert recompute_kind(text) == kind


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("flash", "flash"),
        ("FlashAttention-2", "flash"),
        ("sdpa", "flash"),
        ("no flash", "fused-softmax"),
        ("unfused+fused softmax (no flash)", "fused-softmax"),
        ("", None),
    ],
)
def test_attention(text, kind):
    assert attention_kind(text) == kind


@pytest.mark.parametrize(
    ("text", "gb_s"),
    [
        ("1600 Gbps node-node RoCE", 25.0),
        ("Selene: NVLink/NVSwitch; 8x200 Gb/s HDR IB per node", 25.0),
        ("4x Omni-Path 100 Gb/s per node", 6.25),
        ("RDMA 400 Gb/s per GPU", 50.0),
        ("InfiniBand NDR", 50.0),
        ("NVLink", None),
    ],
)
def test_network(text, gb_s):
    assert network_gb_s_per_gpu(text, 8) == gb_s


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("a100_80gb", "a100-sxm4-80gb"),
        ("A100 40GB", "a100-sxm4-40gb"),
        ("NVIDIA DGX-1 (8x V100 16GB)", "v100-sxm2-16gb"),
        ("H100 80GB 700W", "h100-sxm5-80gb"),
        ("H200", "h200-sxm"),
        ("1x 4090", "rtx-4090"),
        ("b200", "b200-sxm"),
        ("H100 PCIe", "h100-pcie-80gb"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"),
        ("a100", "a100-sxm4-80gb"),
    ],
)
def test_gpu_names(text, key):
    assert gpu_from_words(text).key == key


def test_an_unknown_gpu_is_refused_with_near_names():
    assert gpu_from_words("TPU v4") is None
    with pytest.raises(UserError) as caught:
        known_gpu("h1000")
    assert "h100" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "recipe", "compute", "state_bytes"),
    [
        ("fp16 mixed", "mixed", "fp16", 10),
        ("mixed fp16", "mixed", "fp16", 10),
        ("bf16, fp32 grad accumulation", "deepspeed", "bf16", 8),
        ("amp_bf16 / FSDP mixed_precision=DEFAULT", "fsdp", "bf16", 8),
        ("AMP", "autocast", "fp16", 8),
        ("TF32", "autocast", "tf32", 8),
        ("FP32", "autocast", "fp32", 8),
        ("BFloat16", "fsdp", "bf16", 8),
        ("float8 (e4m3)", "fsdp", "fp8", 8),
        ("FP8", "mixed", "fp8", 10),
    ],
)
def test_precisions(text, recipe, compute, state_bytes):
    """State bytes: weights, gradients and master copy, before the optimizer's moments."""
    found = parse_precision(text, recipe=recipe)
    assert found.compute == compute
    assert found.weight_bytes + found.gradient_bytes + found.master_bytes == state_bytes


def test_pure_fsdp_reduces_in_16_bit():
    assert parse_precision("bf16 / FSDP mixed_precision=PURE", recipe="fsdp").reduce_bytes == 2
    assert parse_precision("amp_bf16 / FSDP mixed_precision=DEFAULT", recipe="fsdp").reduce_bytes == 4


def test_an_unknown_precision_is_refused_with_the_known_ones():
    with pytest.raises(UserError, match="precision"):
        parse_precision("posit8")


def test_out_of_memory_is_not_the_same_as_close_to_it():
    assert has_out_of_memory("OOM")
    assert has_out_of_memory("CUDA out of memory")
    assert not has_out_of_memory("16GB borderline OOM")
    assert not has_out_of_memory("", None)
