"""Rows of the simpler tables (images/s or sequences/s per model, GPU, precision and batch) as questions.

BERT rows become transformer jobs, image models are traced. A row that lacks its batch size or whose model
nobody here knows is skipped with the reason. Called by ``validate.py``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from vivace.errors import UserError
from vivace.plan.facts.precision import Precision, parse_precision
from vivace.plan.grading.language_rows import COMMENTS, Skip
from vivace.plan.grading.words import network_gb_s_per_gpu, number, whole
from vivace.plan.images.image_job import VisionJob, traced, vision_step_time
from vivace.plan.jobs.job import TransformerJob
from vivace.plan.machines.cluster import machine_for, machine_from_gpu
from vivace.plan.machines.gpu_names import gpu_from_words
from vivace.plan.machines.machine import Machine
from vivace.plan.models.built_in import named_transformer
from vivace.plan.time.step import StepTime, step_time
from vivace.records.layout import Layout

# NVIDIA's BERT recipe of NGC 21.11 gathers the masked positions before the output layer (run_pretraining.py:
# "dense sequence output" unless --no_dense_sequence_output; max_predictions_per_seq is 20 of 128 and 80 of
# 512). Its versions of 2019 and 2020 score every position, and so do the planner's own BERT models.
GATHERED_SHARE = 80 / 512
GATHERS = re.compile(r"ngc 2[1-9]\.\d\d")

__all__ = ["VisionQuestion", "question_from_vision_row", "timm_as_vision"]


@dataclass(frozen=True)
class VisionQuestion:
    job: VisionJob | TransformerJob
    measured_s: float
    group: str
    notes: tuple[str, ...]
    samples: int = 1

    def predict(self) -> StepTime:
        return step_time(self.job) if isinstance(self.job, TransformerJob) else vision_step_time(self.job)


def timm_as_vision(row: dict[str, str]) -> dict[str, str]:
    """timm's result files: one GPU, its name in the comments or the file name, AMP and channels-last there
    too.
    """
    words = row.get(COMMENTS, "").lower()
    gpu = next((name for name in ("rtx 3090", "rtx3090", "4090", "5090", "a100", "h100") if name in words), "")
    return {
        "row_id": row.get("model", ""),
        "model": row.get("model", ""),
        "img_size": row.get("train_img_size", ""),
        "gpu": gpu.replace("rtx3090", "rtx 3090"),
        "n_gpus": "1",
        "precision": "AMP" if "amp" in words else "FP32",
        "batch_per_gpu": row.get("train_batch_size", ""),
        "samples_s": row.get("train_samples_per_sec", ""),
        "notes": "",
        COMMENTS: row.get(COMMENTS, ""),
    }


def _machine(row: dict[str, str]) -> Machine:
    spec = gpu_from_words(row.get("gpu", ""))
    if spec is None:
        raise Skip(f"GPU {row.get('gpu') or '(blank)'!r} is not in the catalogue")
    words = (row.get("source_ref", "") + row.get(COMMENTS, "") + row.get("gpu", "")).lower()
    per_node = 16 if "dgx-2" in words and "16x" in row.get("gpu", "").lower() else 8
    if "dlperf" in words or "oneflow" in words:
        return machine_for("oneflow-dlperf-v100").machine
    network = network_gb_s_per_gpu(row.get("interconnect") or row.get(COMMENTS), per_node)
    machine = machine_from_gpu(spec, per_node, network).machine
    if per_node == 16:  # DGX-2 joins its V100 with switches, not in a mesh
        from dataclasses import replace

        machine = replace(machine, links=replace(machine.links, intra_kind="switch"))
    return machine


def _precision(row: dict[str, str], machine: Machine) -> Precision:
    text = re.split(r"&|,", row.get("precision", ""))[0].strip()
    has_bf16 = machine.gpu.supports("bf16")
    precision = parse_precision(text or "fp32", "autocast", gpu_has_bf16=has_bf16)
    if not machine.gpu.supports(precision.compute):
        raise Skip(f"{machine.gpu.name} has no units for {row.get('precision')}")
    return precision


def _seconds(row: dict[str, str], global_batch: int) -> float:
    if value := number(row.get("step_time_ms")):
        return value / 1e3
    if value := number(row.get("samples_s")):
        return global_batch / value
    raise Skip("neither samples_s nor step_time_ms is given")


def question_from_vision_row(row: dict[str, str]) -> VisionQuestion:
    """The job of one row, or ``Skip`` with the reason."""
    try:
        return _question(row)
    except UserError as error:
        raise Skip(error.message) from None


def _question(row: dict[str, str]) -> VisionQuestion:
    machine = _machine(row)
    gpus = whole(row.get("n_gpus")) or 1
    batch = whole(row.get("batch_per_gpu"))
    name = row.get("model", "")
    if batch is None:
        raise Skip("batch_per_gpu is blank")
    if batch < 1:
        raise Skip(f"batch_per_gpu is {batch}")
    precision = _precision(row, machine)
    steps = re.search(r"accumulation steps (\d+)", row.get("notes", ""))
    accumulation = int(steps[1]) if steps else 1
    if "bert" in name.lower():
        return _bert(row, machine, gpus, batch, accumulation, precision)
    notes = row.get("notes", "").lower() + row.get("precision", "").lower()
    if "mxnet" in notes:
        raise Skip("MXNet, not PyTorch")
    if "dataloader" in notes:
        raise Skip("the row measures the data loader, whose speed is not in the table")
    size = whole(row.get("img_size")) or 224
    element = int(precision.activation_bytes)
    job = VisionJob(traced(_plain(name), batch, size, element), machine, gpus, precision, accumulation=accumulation)
    group = f"{name} on {gpus} {machine.gpu.name}"
    total = batch * gpus * accumulation
    return VisionQuestion(job, _seconds(row, total), group, (), total)


def _plain(name: str) -> str:
    return re.sub(r"\s*\(.*?\)", "", name).strip()


def _bert(
    row: dict[str, str], machine: Machine, gpus: int, batch: int, accumulation: int, precision: Precision
) -> VisionQuestion:
    """BERT as a transformer that is not causal. Fine-tuning (SQuAD) has no output vocabulary."""
    name = row["model"].lower()
    model = named_transformer("bert-large" if "large" in name else "bert-base")
    if model is None:
        raise Skip("no such BERT")
    from dataclasses import replace

    notes = []
    seq_len = whole(row.get("seq_len"))
    if seq_len is None:
        phase_one = re.search(r"seq(?:uence length)? ?(\d+)", row.get(COMMENTS, ""))
        seq_len = int(phase_one[1]) if phase_one else 128
        notes.append(f"seq_len blank: {seq_len} (the file's comments)")
    if batch * seq_len > 262_144:  # more than any card holds: what the accumulation steps add up to
        if accumulation == 1 or batch % accumulation:
            raise Skip(f"batch_per_gpu {batch} is the accumulated batch, not the micro-batch")
        notes.append(f"batch_per_gpu {batch} is the accumulated batch: micro-batch {batch // accumulation}")
        batch //= accumulation
    # The recipes pad 30,522 words to a multiple of 8; question answering has two outputs, padded likewise.
    vocab = 8 if "squad" in name or "fine" in name else -(-model.vocab // 8) * 8
    share = GATHERED_SHARE if GATHERS.search(row.get(COMMENTS, "").lower()) else 1.0
    model = replace(model, vocab=vocab, seq_len=seq_len, predicted_share=share)
    layout = Layout(data=gpus, micro_batch=batch)
    total = batch * gpus * accumulation
    job = TransformerJob(model, machine, layout, total, seq_len, precision, "torch", "fused-softmax", optimizer="lamb")
    return VisionQuestion(job, _seconds(row, total), f"{name} on {gpus}", tuple(notes), total)
