"""A measurement that contradicts itself says so; an honest one, whatever its kernels are called, does not."""

from __future__ import annotations

import pytest
from measure.test_kernels import event
from practices.evidence import measurement
from report.made import in_terminal, made_measurement

from vivace.measure.contradictions import contradictions
from vivace.measure.inside.profiling.kernels import analyse
from vivace.measure.inside.profiling.widths import width
from vivace.measure.inside.steps.timeline import PHASES
from vivace.measure.merge import merge
from vivace.protocol.payload import Clock, Payload, SeenDevice, SeenFlops, Series
from vivace.records.measurement import Flops, Measurement, Profile
from vivace.report.measurement_sections import measurement_sections
from vivace.report.terminal import measurement_view
from vivace.tune.checking import findings_of
from vivace.tune.probing import Causes

H200 = {"fp32": 66.9, "tf32": 494.7, "bf16": 989.4}
TF32 = "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32_warpgroupsize1x1x1_execute_segment_k_off"
BF16 = "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT"


def flops(**by_type: int) -> Flops:
    return Flops(model=sum(by_type.values()), hardware=sum(by_type.values()), by_type=by_type)


def profile(**ms: float) -> Profile:
    """Of kernels by their names, as the profiler window makes it."""
    start, events = 0.0, []
    for name, duration in ms.items():
        events.append(event(name, start, 1e3 * duration))
        start += 1e3 * duration
    return Profile(**analyse(events, steps=1))


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        (TF32, "32"),
        ("nvjet_sss_tf32_128x256_TNT", "32"),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize128x128x8", "32"),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_64x64_8x5_nn_align1>", "32"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_16x4_nn_align4>", "32"),
        ("fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float>)", "32"),
        ("cudnn_infer_ampere_scudnn_128x64_relu_xregs_large_nn_v1", "32"),
        ("sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize64x32x64_stage5", "32"),
        ("void cutlass__5x_cudnn::Kernel<cutlass_tensorop_s1688dgrad_optimized_tf32_256x64_16x4_nhwc_unity>", "32"),
        (BF16, "16"),
        ("nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NNT", "16"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64", "16"),  # adds up in fp32
        ("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn", "16"),
        ("volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn", "16"),
        ("turing_h1688gemm_128x128_ldg8_stages_32x1_nn", "16"),
        ("sm80_xmma_wgrad_implicit_gemm_indexed_bf16bf16_bf16f32_f32_nhwckrsc_nhwc", "16"),
        ("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4>>", "16"),
        ("fmha_cutlassF_bf16_aligned_64x128_rf_sm80", "16"),
        ("triton_tem_fused_mm_3", "unnamed"),
        ("void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4>", "unnamed"),
    ],
)  # fmt: skip
def test_kernel_names_tell_the_width_of_their_operands(name: str, bits: str):
    assert width(name) == bits


def test_bf16_that_was_counted_and_tf32_that_ran_contradict_each_other():
    """As seen on an H200: 189 ms per step, reported as bf16 with 15 % MFU."""
    (found,) = contradictions(flops(bf16=99, fp32=1), profile(**{TF32: 90, "triton_poi_fused_add": 30}), 0.189, H200)
    assert found.kind == "counted-16-ran-32"
    assert found.evidence == {"counted_share": 0.99, "ran_share": 1.0, "products_32_ms": 90.0}
    assert "99% of the FLOPs are counted as 16-bit" in found.says


def test_the_other_way_round():
    (found,) = contradictions(flops(tf32=100), profile(**{BF16: 80, "flash_fwd_kernel": 10}), 0.065, H200)
    assert found.kind == "counted-32-ran-16"


@pytest.mark.parametrize(
    ("counted", "ran"),
    [
        ({"bf16": 100}, {BF16: 90, "ampere_sgemm_128x64_nn": 10}),  # a head in fp32
        ({"bf16": 100}, {BF16: 6, TF32: 94}),  # some of it is bf16: cuDNN chooses strange kernels
        ({"bf16": 70, "fp32": 30}, {TF32: 100}),  # mixed by intention
        ({"bf16": 100}, {"triton_tem_fused_mm_3": 100}),  # names that say nothing
        ({"bf16": 100}, {TF32: 40, "triton_tem_fused_mm_3": 60}),
        ({"fp32": 100}, {TF32: 100}),
        ({"fp8": 100}, {BF16: 100}),
        ({"bf16": 100}, {"void at::native::vectorized_elementwise_kernel<4, float>": 100}),
    ],
)
def test_no_false_alarm(counted: dict[str, int], ran: dict[str, float]):
    assert contradictions(flops(**counted), profile(**ran), 0.1, H200) == ()


def test_on_a_cpu_and_without_a_profile_there_is_nothing_to_contradict():
    operators = Profile(steps=3, roles_ms={"matmul": 5.0})
    assert contradictions(flops(bf16=10**12), operators, 0.01, {}) == ()
    assert contradictions(flops(bf16=10**12), None, 0.01, H200) == ()
    assert contradictions(None, profile(**{TF32: 90}), 0.01, H200) == ()


def test_no_step_is_faster_than_its_flops_at_their_peak():
    counted = flops(bf16=989_400 * 10**9, tf32=494_700 * 10**9)  # a second each
    named = profile(**{BF16: 50.0, TF32: 50.0})
    (found,) = contradictions(counted, named, 1.8, H200)
    assert found.kind == "faster-than-peak"
    assert found.evidence == {"least_ms": 2000.0, "step_ms": 1800.0}
    assert contradictions(counted, named, 1.95, H200) == ()
    assert contradictions(counted, named, 1.8, {**H200, "tf32": None}) == ()


def test_causal_attention_is_counted_in_full_and_may_be_faster_than_its_count():
    assert contradictions(flops(bf16=989_400 * 10**9), profile(flash_fwd_kernel=500.0), 0.6, H200) == ()


def merged(seen: SeenFlops | None, events: list[dict] | None) -> Measurement:
    """Of one rank on an H200, whose steps take 189 ms."""
    step = Series([189.0] * 5, {phase: [0.0] * 5 for phase in PHASES})
    device = SeenDevice(name="NVIDIA H200", uuid="GPU-1", memory_gib=139.8, sm_count=132, compute_capability="9.0")
    payload = Payload(
        clock=Clock.GPU, device="cuda:0", devices=[device], series=step, total_steps=5, input_shapes=1, flops=seen,
        profile=analyse(events, steps=1) if events else None,
    )  # fmt: skip
    return merge([payload], measurement().machine, ("python", "train.py"), {}, "runs/x", "2025-01-01")


COUNTED = SeenFlops(model=10**14, hardware=10**14, forward=4 * 10**13, forwards=1, by_type={"bf16": 10**14})


def test_a_merged_measurement_has_it_in_place_of_an_mfu():
    record = merged(COUNTED, [event(TF32, 0, 150e3)])
    assert [one.kind for one in record.contradictions] == ["counted-16-ran-32"]
    assert (record.mfu, record.mfu_detail) == (None, None)
    honest = merged(COUNTED, [event(BF16, 0, 150e3)])
    assert honest.contradictions == ()
    assert honest.mfu == pytest.approx(1e14 / 0.189 / 989.5e12, rel=1e-3)


def test_a_gpu_run_without_flops_and_profile_contradicts_nothing():
    """The trials of a tune."""
    record = merged(None, None)
    assert (record.contradictions, record.mfu, record.flops) == ((), None, None)


def test_the_terminal_shows_it_first_and_no_mfu():
    (found,) = contradictions(flops(bf16=100), profile(**{TF32: 90}), 0.189, H200)
    text = in_terminal(measurement_view(measurement(contradictions=(found,)), "runs/x"), width=250)
    assert text.strip().startswith("CONTRADICTION: 100% of the FLOPs are counted as 16-bit")
    assert "not shown: the counted arithmetic is not what ran" in text


def test_the_page_shows_it_before_its_title():
    (found,) = contradictions(flops(bf16=100), profile(**{TF32: 90}), 0.189, H200)
    page = str(measurement_sections(made_measurement(contradictions=(found,)), "x")[0])
    assert 0 < page.index("Contradiction: 100% of the FLOPs") < page.index("<h1>")


def test_a_job_whose_measurement_contradicts_itself_is_not_called_tuned():
    (found,) = contradictions(flops(bf16=100), profile(**{TF32: 90}), 0.189, H200)
    tuned = measurement(roles={"matmul": 98.0})
    assert findings_of(tuned, Causes(), "x").verdict == "tuned"
    assert findings_of(tuned.model_copy(update={"contradictions": (found,)}), Causes(), "x").verdict == "unknown"
