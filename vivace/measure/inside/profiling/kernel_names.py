"""How kernel names tell what a kernel is. Matched in lower case, anywhere in the name; the first that fits wins.

Sources: the name lists of PyTorch's former TensorBoard profiler plugin; cuBLAS, cuDNN, CUTLASS and flash-attention
kernel names as they appear in traces of V100, A100 and H200 GPUs.
"""

from __future__ import annotations

__all__ = ["CPU_ROLES", "FAMILIES", "ROLES"]

# Tensor-core instructions by architecture: Volta 884, Turing and Ampere 1688/16816, Hopper wgmma and nvjet.
# "simt" is plain FP32 arithmetic on the CUDA cores: never tensor cores, whatever else the name says.
FAMILIES = {
    "communication": ("nccl",),
    "simt": ("simt", "sgemm", "_scudnn_", "cudnn_infer_ampere_scudnn", "implicit_convolve_sgemm", "ffma"),
    "tensor_core": (
        "tensorop",
        "h884",
        "s884",
        "h1688",
        "s1688",
        "s16816",
        "h16816",
        "i16832",
        "hmma",
        "wgmma",
        "gmma",
        "tcgen05",
        "nvjet",
        "xmma",
        "flash_fwd",
        "flash_bwd",
        "fmha",
        "sdpa",
        "tf32f32",
        "tf32tf32",
        "bf16bf16",
        "f16f16",
        "cutlass_tensorop",
        "cutlass3x",
    ),
}

# What a kernel is for, on a GPU. The special comes before the general.
# Recurrent: cuDNN's cells, and whole layers; their products are also gemms.
ROLES = {
    "communication": ("nccl",),
    "layout": ("nchwtonhwc", "nhwctonchw", "transpose", "nchw2nhwc", "nhwc2nchw", "permute"),
    "attention": ("flash", "fmha", "sdpa", "attention", "mem_eff"),
    "optimizer": ("multi_tensor_apply", "fusedadam", "fusedsgd", "foreach"),
    "norm": ("batch_norm", "batchnorm", "bn_fw", "bn_bw", "layer_norm", "layernorm", "group_norm", "rms_norm"),
    "softmax": ("softmax",),
    "recurrent": ("rnn", "lstm_", "gru_", "cudnn::dropout"),
    "convolution": ("conv", "fprop", "dgrad", "wgrad", "winograd", "implicit_gemm", "cudnn"),
    "matmul": ("gemm", "nvjet", "cutlass", "cublas", "matmul", "splitk", "gemv", "triton_tem"),
    "pooling": ("pool",),
    "elementwise": (
        "elementwise",
        "vectorized",
        "triton_poi",
        "copy",
        "fill",
        "cat_array",
        "index",
        "gather",
        "scatter",
    ),
    "reduction": ("reduce", "triton_red", "triton_per"),
}

# The same for operators on a CPU.
CPU_ROLES = {
    "layout": ("reorder", "contiguous", "transpose"),
    "attention": ("scaled_dot_product",),
    "recurrent": ("rnn", "lstm", "gru"),
    "optimizer": ("foreach", "_fused_", "optimizer"),
    "norm": ("norm",),
    "softmax": ("softmax",),
    "convolution": ("conv",),
    "matmul": ("mm", "linear", "matmul", "dot"),
    "pooling": ("pool",),
    "loader": ("dataloader",),
}
