"""What a row of the 42-column schema measured: seconds per step and GiB, converted from each source's
convention.

Seconds or tokens per second are taken where they are printed; TFLOP/s and MFU only with a definition that
can be turned back into seconds. Pure; called by ``validate.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

from vivace.plan.grading.words import has_out_of_memory, number
from vivace.plan.jobs.job import TransformerJob
from vivace.plan.memory.peak import Memory
from vivace.plan.models.flops import megatron_hardware_flops, megatron_model_flops, model_flops_per_token
from vivace.plan.run.energy import assumption

__all__ = ["MeasuredMemory", "measured_memory", "measured_seconds", "ran_out_of_memory"]

GIB = 2.0**30


@dataclass(frozen=True)
class MeasuredMemory:
    gib: float
    kind: str
    """``total`` (nvidia-smi), ``reserved`` or ``allocated``."""

    def predicted(self, memory: Memory) -> float:
        values = {
            "total": memory.total_gib,
            "reserved": memory.reserved_gib,
            "allocated": memory.allocated_gib,
        }
        return values[self.kind]


def measured_seconds(row: dict[str, str], job: TransformerJob) -> tuple[float, str] | None:
    """Seconds per step and the column they came from, or None."""
    direct = number(row.get("step_time_s"))
    if direct:
        return direct, "step_time_s"
    tokens = float(job.tokens_per_step)
    gpus = job.layout.gpus
    if value := number(row.get("tokens_s")):
        return tokens / value, "tokens_s"
    if value := number(row.get("tokens_s_gpu")):
        return tokens / (value * gpus), "tokens_s_gpu"
    if value := number(row.get("tflops_gpu")):
        flops = _flops(row, job)
        if flops:
            return flops / (value * 1e12 * gpus), "tflops_gpu"
    if value := number(row.get("samples_s")):
        return job.global_batch / value, "samples_s"
    if seconds := _from_whole_run(row, job):
        return seconds, "gpu_hours"
    for column in ("mfu_pct", "hfu_pct"):
        value = number(row.get(column))
        if value:
            flops = _flops(row, job) if column == "hfu_pct" else _mfu_flops(row, job)
            peak = job.machine.gpu.peak(job.precision.compute)
            if flops:
                return flops / (value / 100 * peak * gpus), column
    return None


def _from_whole_run(row: dict[str, str], job: TransformerJob) -> float | None:
    """Seconds per step from the tokens and GPU-hours of a finished run, less the share that runs lose
    (energy.toml).
    """
    tokens, hours = number(row.get("tokens")), number(row.get("gpu_hours"))
    if not tokens or not hours or "per" in row.get("gpu_hours", "") or "+" in row.get("tokens", ""):
        return None
    steps = tokens / job.tokens_per_step
    return hours * 3600 / job.layout.gpus / steps * assumption("goodput", "share")


def _flops(row: dict[str, str], job: TransformerJob) -> float | None:
    """FLOPs of a step by the row's own definition; None when it cannot be told."""
    text = row.get("tflops_def", "").lower()
    model, batch, seq_len = job.model, job.global_batch, job.seq_len
    if "size_b" in text or "size*" in text:
        factor = 8 if job.layout.recompute == "full" else 6
        parameters = number(row.get("params")) or model.parameters
        return factor * parameters * seq_len * batch
    if "hardware" in text or "recompute" in text or "96" in text:
        return megatron_hardware_flops(model, seq_len, batch)
    if "model" in text or "mfu" in text or "72" in text or "6*n" in text or "6n" in text:
        half = 0.5 if "half" in text or "halved" in text or "causal" in text else 1.0
        return model_flops_per_token(model, seq_len, half) * batch * seq_len
    return None


def _mfu_flops(row: dict[str, str], job: TransformerJob) -> float:
    if "6*n" in row.get("tflops_def", "").lower():
        return model_flops_per_token(job.model, job.seq_len) * job.tokens_per_step
    return megatron_model_flops(job.model, job.seq_len, job.global_batch)


def ran_out_of_memory(row: dict[str, str]) -> bool:
    return has_out_of_memory(row.get("notes"), row.get("mem_gpu"), row.get("step_time_s"), row.get("tokens_s"))


def measured_memory(row: dict[str, str]) -> MeasuredMemory | None:
    """GiB with what the figure counts. "GB" is 10^9 bytes unless it was read off nvidia-smi, which counts
    MiB.
    """
    text, definition = row.get("mem_gpu", ""), row.get("mem_def", "").lower()
    value = number(text)
    if not value:
        return None
    words = f"{text} {definition}".lower()
    unit = f"{text} {definition.split('(')[0]}".lower()  # what stands in brackets explains, it is not the unit
    kind = "total"
    if "alloc" in words or "active" in words:
        kind = "allocated"
    elif "reserv" in words or "peak" in words:
        kind = "reserved"
    if "mib" in unit:
        return MeasuredMemory(value / 1024, kind)
    if "mb" in unit and value > 500:
        return MeasuredMemory(value * 1e6 / GIB, kind)
    binary = "gib" in unit or "nvidia-smi" in words
    return MeasuredMemory(value if binary else value * 1e9 / GIB, kind)
