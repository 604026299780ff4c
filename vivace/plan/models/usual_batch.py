"""The global batch that runs of a size use, when nobody gave one.

Pure arithmetic; called by ``make_job.py`` and ``budget.py``.
"""

from __future__ import annotations

import math

from vivace.plan.models.transformer import Transformer

__all__ = ["about_batch", "default_global_batch"]

# Tokens per step that runs of that many parameters use (GPT-3 paper table 2.1; Llama 3: 16M at 405B).
BATCH_TOKENS = ((1e9, 0.5e6), (2e10, 2e6), (1e11, 4e6), (float("inf"), 16e6))


def _usual_tokens(model: Transformer) -> float:
    """Per step."""
    return next(tokens for limit, tokens in BATCH_TOKENS if model.parameters < limit)


def default_global_batch(model: Transformer, gpus: int) -> int:
    """Sequences per step: the usual tokens for that size, as GPUs times a power of two (it must divide well)."""
    per_gpu = max(1.0, _usual_tokens(model) / model.seq_len / gpus)
    return gpus * 2 ** round(math.log2(per_gpu))


def about_batch(batch: int, model: Transformer) -> str:
    """What is said of an assumed batch: with many GPUs, one sequence each is more than runs of that size use."""
    tokens, usual = batch * model.seq_len, _usual_tokens(model)
    text = f"global batch {batch} sequences ({tokens / 1e6:.1f}M tokens)"
    if tokens <= 1.5 * usual:  # a power of two is off by a factor of 1.41 at most
        return f"{text}, usual for this size"
    return f"{text}, one for each GPU: {tokens / usual:.1f} times what is usual for this size"
