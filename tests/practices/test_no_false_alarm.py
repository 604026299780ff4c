"""Jobs that are well tuned, on several machines: no practice says anything about them."""

from __future__ import annotations

import pytest
from practices.evidence import A100, V100, measurement

from vivace.practices.engine.registry import all_practices
from vivace.records.structure import Optimizer

PRACTICES = {practice.name: practice for practice in all_practices()}

TUNED_FLAGS = {
    "compiled": True, "cudnn_benchmark": True, "float32_matmul_precision": "high", "flash_sdp": True,
    "mem_efficient_sdp": True, "cudnn_sdp": True, "onednn": True,
}  # fmt: skip
FUSED = Optimizer(name="AdamW", has_fused=True, has_foreach=True, fused=True, tensors=148)
TRANSFORMER = {
    "structure": {
        "autocast": "bfloat16",
        "optimizers": (FUSED,),
        "attention": {"scaled_dot_product_flash_attention": 12},
        "repeated_blocks": {"Block": 12},
        "modules": {"linear": 49, "norm": 25, "embedding": 2},
        "threads": 8,
    },
    "roles": {"matmul": 78.0, "attention": 12.0, "elementwise": 8.0},
    "flags": TUNED_FLAGS,
}
CONVNET = {
    "structure": {
        "autocast": "bfloat16",
        "optimizers": (FUSED,),
        "conv_weights_channels_last": 1.0,
        "modules": {"convolution": 53, "norm": 53, "linear": 1},
        "threads": 8,
    },
    "roles": {"convolution": 60.0, "norm": 25.0, "elementwise": 13.0},
    "flags": TUNED_FLAGS,
}
JOBS = {
    "transformer on an H200": TRANSFORMER,
    "convnet on an H200": CONVNET,
    "convnet on an A100": {**CONVNET, "gpu": A100},
    "fp16 convnet on a V100": {
        **CONVNET,
        "gpu": V100,
        "flops": {"fp16": 10**12},
        "structure": {**CONVNET["structure"], "autocast": "float16"},
    },
    "convnet on a CPU": {**CONVNET, "on_gpu": False, "structure": {**CONVNET["structure"], "autocast": None}},
    # 118 of 140 GiB: a batch chosen to fill the card is no defect.
    "large batch on an H200": {**TRANSFORMER, "memory": {"allocated_peak_gib": 118.0, "reserved_peak_gib": 126.0}},
}


@pytest.mark.parametrize("job", JOBS)
def test_a_well_tuned_job_raises_no_alarm(job: str):
    m = measurement(**JOBS[job])
    assert {name: found for name, practice in PRACTICES.items() if (found := practice.find(m))} == {}
