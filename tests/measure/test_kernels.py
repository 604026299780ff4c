"""The profiler window's analysis, on traces written by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.measure.inside.profiling.kernels import analyse, family, length, overlap, union


def event(name: str, start_us: float, us: float, category: str = "kernel", **arguments: object) -> dict:
    return {"ph": "X", "cat": category, "name": name, "ts": start_us, "dur": us, "args": arguments}


def test_busy_share_counts_overlapping_kernels_once():
    result = analyse([event("a", 0, 10), event("b", 5, 10), event("c", 20, 20)], steps=1)
    assert result["busy_share"] == pytest.approx(35 / 40)
    assert result["idle_ms_per_step"] == pytest.approx(0.005)


def test_communication_is_exposed_only_where_nothing_else_runs():
    result = analyse([event("sgemm", 0, 10), event("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 5, 20)], steps=2)
    assert result["communication_ms_per_step"] == pytest.approx(0.010)
    assert result["communication_exposed_ms_per_step"] == pytest.approx(0.0075)


def test_copies_are_told_apart_by_direction_and_memory():
    events = [
        event("Memcpy HtoD (Pageable -> Device)", 0, 100, "gpu_memcpy", bytes=2**20),
        event("Memcpy HtoD (Pinned -> Device)", 200, 50, "gpu_memcpy", bytes=2**21),
        event("Memcpy HtoD (Pinned -> Device)", 300, 50, "gpu_memcpy", bytes=2**21),
    ]
    copies = {copy["kind"]: copy for copy in analyse(events, steps=1)["copies"]}
    assert copies["Memcpy HtoD (Pinned -> Device)"]["mib_per_step"] == 4
    assert copies["Memcpy HtoD (Pageable -> Device)"]["per_step"] == 1


def test_an_empty_trace_is_no_error():
    assert analyse([], steps=3) == {"steps": 3, "top": [], "runtime": []}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT", "tensor_core"),
        ("sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64", "tensor_core"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x128_32x5_nn_align8>", "tensor_core"),
        ("volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn", "tensor_core"),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_64x64_8x5_nn_align1>", "simt"),
        ("ampere_sgemm_128x64_nn", "simt"),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float> >", "other"),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "communication"),
    ],
)  # fmt: skip
def test_families_by_name(name: str, kind: str):
    assert family(name) == kind


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("void LSTM_elementWise_bp1<float, float, float>(int, int, float*, cudnnRNNClipMode_t)", "recurrent"),
        ("void elemWiseRNNcell<float, float, float, (cudnnRNNMode_t)2, (cudnnRNNBiasMode_t)2>(int, int)", "recurrent"),
        ("void cudnn::dropout_apply_mask<float, float, 4>(float, float*, float const*, long)", "recurrent"),
        ("sm90_xmma_gemm_f32f32_tf32f32_f32_nt_n_tilesize256x128x32_cublas", "matmul"),
        ("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float>", "norm"),
        ("sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64", "convolution"),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float> >", "elementwise"),
    ],
)  # fmt: skip
def test_roles_by_name(name: str, role: str):
    """The first three as an LSTM of cuDNN's left them in a trace of an H200."""
    assert analyse([event(name, 0, 3000)], steps=3)["roles_ms"] == {role: 1.0}


intervals = st.lists(st.tuples(st.floats(0, 100), st.floats(0, 20)).map(lambda p: (p[0], p[0] + p[1])), max_size=20)


@given(intervals, intervals)
def test_overlap_is_what_the_union_saves(first, second):
    a, b = union(first), union(second)
    assert overlap(a, b) == pytest.approx(length(a) + length(b) - length(union(first + second)), abs=1e-6)


def _call(name: str, start_us: float, us: float) -> dict:
    return event(name, start_us, us, "cuda_runtime")


def test_the_host_is_told_from_its_waits():
    """Two steps: 100 µs of launches and Python each, then 400 µs in a synchronisation."""
    events = [event("elementwise", 50, 900)]
    for start in (0, 500):
        events += [_call("cudaLaunchKernel", start + at, 5) for at in (0, 30, 60)]
        events.append(_call("cudaStreamSynchronize", start + 100, 400))
    found = analyse(events, steps=2)
    assert found["host_ms_per_step"] == pytest.approx(0.100)
    assert found["host_waits_ms_per_step"] == pytest.approx(0.400)


def test_a_launch_into_a_full_queue_is_a_wait():
    events = [event("elementwise", 50, 900)]
    events += [_call("cudaLaunchKernel", at, 5) for at in (0, 10, 20, 30)] + [_call("cudaLaunchKernel", 40, 205)]
    found = analyse(events, steps=1)
    assert found["host_waits_ms_per_step"] == pytest.approx(0.200)
    assert found["host_ms_per_step"] == pytest.approx(0.045)


def test_a_trace_without_calls_says_nothing_of_the_host():
    events = [event("elementwise", 50, 900)]
    assert "host_ms_per_step" not in analyse(events, steps=1)
