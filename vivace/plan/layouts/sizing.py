"""Sizing advice: NVIDIA's checklists and wave quantisation applied to the given model, each with what it is
worth.

Every piece of advice is priced by asking the time model again with the better size. Pure; called by the
CLI. Sources: NVIDIA deep-learning performance guides (fully-connected, convolutional, memory-limited
layers), as taught in the IDRIS DLO-JZ course: multiples of 8 (fp16), 64 best on A100; batch and widths
above 128; waves of full multiprocessors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from vivace.hardware.products import TILES, round_up, tensor_core_multiple, wave_efficiency
from vivace.plan.images.trace import TracedModel
from vivace.plan.jobs.job import TransformerJob
from vivace.plan.time.step import step_time

__all__ = ["Advice", "convolution_advice", "round_up", "tensor_core_multiple", "transformer_advice"]


@dataclass(frozen=True)
class Advice:
    """``gain_pct`` is the predicted gain in samples/s; None where the model cannot price it."""

    text: str
    gain_pct: float | None = None

    def __str__(self) -> str:
        return self.text if self.gain_pct is None else f"{self.text}: {self.gain_pct:+.1f} %"


def _gain(job: TransformerJob, better: TransformerJob) -> float:
    return 100.0 * (step_time(job).total / step_time(better).total - 1.0)


def _with_model(job: TransformerJob, **sizes: int) -> TransformerJob:
    return replace(job, model=replace(job.model, **sizes))  # type: ignore[arg-type]


def transformer_advice(job: TransformerJob) -> list[Advice]:
    """What to change, best first; empty when the sizes are good."""
    found = [*_vocabulary(job), *_widths(job), *_heads(job), *_tokens(job), *_waves(job)]
    return sorted(found, key=lambda advice: -(advice.gain_pct or 0.0))


def _vocabulary(job: TransformerJob) -> list[Advice]:
    vocab, tensor = job.model.vocab, job.layout.tensor
    better = round_up(vocab, 64 * tensor)
    if vocab % (8 * tensor) == 0:
        return []
    gain = _gain(job, _with_model(job, vocab=better))
    return [Advice(f"vocabulary {vocab:,} → {better:,} (a multiple of {64 * tensor})", gain)]


def _widths(job: TransformerJob) -> list[Advice]:
    needed, best = tensor_core_multiple(job.precision.compute)
    tensor = job.layout.tensor
    advice = []
    for name, value in (("hidden", job.model.hidden), ("ffn", job.model.ffn)):
        per_rank = value // tensor
        if per_rank % best == 0:
            continue
        better = round_up(value, best * tensor)
        if name == "hidden":
            better = round_up(better, best * job.model.heads) if better % job.model.heads else better
        work = better / value
        raw = _gain(job, _with_model(job, **{name: better}))
        # The wider layer does more work; what counts is the time per parameter.
        gain = (1 + raw / 100) * work**0.9 * 100 - 100
        reason = f"a multiple of {best} on each rank" if per_rank % needed == 0 else f"tensor cores need {needed}"
        if gain > 0.5:
            advice.append(Advice(f"{name} {value:,} → {better:,} ({reason}), per unit of model size", gain))
    return advice


def _heads(job: TransformerJob) -> list[Advice]:
    size = job.model.head_dim
    if size % 8 == 0 and size >= 64:
        return []
    candidates = [h for h in range(1, job.model.heads + 1) if job.model.hidden % h == 0]
    heads = next((h for h in reversed(candidates) if job.model.hidden // h % 64 == 0), None)
    if heads is None:
        return [Advice(f"head size {size} is not a multiple of 64: flash attention pads it")]
    return [Advice(f"{job.model.heads} heads of {size} → {heads} heads of {job.model.hidden // heads}")]


def _tokens(job: TransformerJob) -> list[Advice]:
    tokens = job.layout.micro_batch * job.seq_len // job.layout.context
    if tokens >= 2048 or job.global_batch // job.layout.data <= job.layout.micro_batch:
        return []
    larger = replace(job, layout=replace(job.layout, micro_batch=job.layout.micro_batch * 2))
    return [
        Advice(
            f"micro-batch {job.layout.micro_batch} → {job.layout.micro_batch * 2} "
            f"({tokens} tokens leave products short)",
            _gain(job, larger),
        )
    ]


def _waves(job: TransformerJob) -> list[Advice]:
    """The product whose last wave is emptiest, if it wastes more than a tenth."""
    tokens = job.layout.micro_batch * job.seq_len // job.layout.context
    width = job.model.ffn // job.layout.tensor
    sms = job.machine.gpu.sms
    share = max(wave_efficiency(tokens, width, sms, (tile[0], tile[1])) for tile in TILES)
    if share > 0.9:
        return []
    return [
        Advice(
            f"{tokens} x {width} fills {100 * share:.0f} % of the {sms} multiprocessors over its waves: "
            "another micro-batch or ffn would fill them"
        )
    ]


def convolution_advice(model: TracedModel, dtype: str) -> list[Advice]:
    """Channels that tensor cores cannot use, and depth-wise convolutions that leave them idle."""
    needed, _ = tensor_core_multiple(dtype)
    flops = sum(op.flops for op in model.operations if op.kind in ("conv", "gemm"))
    odd = [op for op in model.operations if op.kind == "conv" and not op.backward and op.n % needed]
    advice = []
    if odd:
        advice.append(Advice(f"{len(odd)} convolutions have output channels that are not a multiple of {needed}"))
    depthwise = sum(op.moved_bytes for op in model.operations if op.kind == "depthwise")
    total = sum(op.moved_bytes for op in model.operations)
    if total and depthwise / total > 0.1:
        advice.append(
            Advice(f"depth-wise convolutions move {100 * depthwise / total:.0f} % of the bytes and use no tensor core")
        )
    if flops and model.batch % 8:
        advice.append(Advice(f"batch {model.batch} → {round_up(model.batch, 8)} (a multiple of 8)"))
    return advice
