"""Floating-point operations of training, with every convention named.

"Model" FLOPs are what the mathematics needs; "hardware" FLOPs add what recomputation repeats. Attention
can be counted in full or halved for the causal mask: papers do both, so each figure says which. Pure
arithmetic; called everywhere.
"""

from __future__ import annotations

from vivace.plan.models.transformer import Transformer

__all__ = [
    "achieved_flops_per_gpu",
    "compute_optimal_flops",
    "compute_optimal_parameters",
    "compute_optimal_tokens",
    "days_to_train",
    "megatron_hardware_flops",
    "megatron_model_flops",
    "model_flops_per_token",
    "training_flops",
]

SECONDS_PER_DAY = 86_400.0


def model_flops_per_token(model: Transformer, seq_len: int, attention_fraction: float = 1.0) -> float:
    """Forward and backward (3 x forward) of one token. ``attention_fraction`` 0.5 halves for the causal mask.

    6 per multiplied parameter, 12 x layers x width x sequence for scores and context (inside sliding windows).
    """
    attention = 12.0 * model.layers * model.attention_width * seq_len * attention_fraction
    attention *= model.attention_share(seq_len)
    return 6.0 * model.matmul_parameters + attention


def megatron_model_flops(model: Transformer, seq_len: int, sequences: int) -> float:
    """Korthikanti 2022 eq. 7: 72 B L s h^2 (1 + s/6h + V/12hL)."""
    h, layers = model.hidden, model.layers
    return 72.0 * sequences * layers * seq_len * h**2 * (1 + seq_len / (6 * h) + model.vocab / (12 * h * layers))


def megatron_hardware_flops(model: Transformer, seq_len: int, sequences: int) -> float:
    """Narayanan 2021 eq. 3, full recomputation counted: 96 B s L h^2 (1 + s/6h + V/16Lh)."""
    h, layers = model.hidden, model.layers
    return 96.0 * sequences * layers * seq_len * h**2 * (1 + seq_len / (6 * h) + model.vocab / (16 * h * layers))


def training_flops(parameters: float, tokens: float, recompute: bool) -> float:
    """8 x tokens x parameters with full recomputation, 6 without (defect D-1 of the source: never ``x``
    itself).
    """
    return (8.0 if recompute else 6.0) * tokens * parameters


def days_to_train(parameters: float, tokens: float, gpus: int, flops_per_gpu: float, recompute: bool = True) -> float:
    """End-to-end days at ``flops_per_gpu`` achieved hardware FLOP/s on each of ``gpus``."""
    return training_flops(parameters, tokens, recompute) / (gpus * flops_per_gpu) / SECONDS_PER_DAY


def achieved_flops_per_gpu(parameters: float, tokens: float, gpus: int, days: float, recompute: bool = False) -> float:
    """The other way round: FLOP/s per GPU that a finished run had."""
    return training_flops(parameters, tokens, recompute) / (gpus * days * SECONDS_PER_DAY)


def compute_optimal_tokens(parameters: float) -> float:
    """Chinchilla: twenty tokens per parameter."""
    return 20.0 * parameters


def compute_optimal_flops(parameters: float) -> float:
    """6 N D with D = 20 N, that is 120 N^2."""
    return 6.0 * parameters * compute_optimal_tokens(parameters)


def compute_optimal_parameters(flops: float) -> float:
    """The parameters that a compute budget pays for at twenty tokens each."""
    return (flops / 120.0) ** 0.5
