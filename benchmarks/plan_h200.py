"""Claim: on one GPU the plan's memory is within 5 % and its step time within 10 % of what PyTorch does.

python benchmarks/plan_h200.py OUT.csv [family …] (one H200, torch 2.11 or newer, about five minutes)

Trains ResNet-50 and ResNet-152 (bf16 autocast, channels-last, SGD), GPT-2 124M and GPT 1.3B (bf16
autocast, fused AdamW) and Llama 3 8B (weights and moments in bf16, every layer checkpointed) at three
batch sizes each, on synthetic data that is already on the GPU. Each family runs in a process of its own,
the smallest batch first; a batch that does not fit is written down as such and the next family goes on.
Step times are CUDA events of single steps: median, p10, p90 after warm-up. Without a GPU: `--predict`
writes the predictions alone, and

python benchmarks/plan_h200.py OUT.csv --beside results/plan_h200.csv

puts today's predictions beside measurements that are on file (no GPU, seconds), with the table for docs.
results/plan_h200.csv was predicted before it was measured; results/plan_h200_after.csv holds the same
measurements beside the model that was then mended with them: fitted, not a test.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from vivace.plan.facts.precision import PRECISIONS
from vivace.plan.images.image_job import VisionJob, traced, vision_memory, vision_step_time
from vivace.plan.jobs.job import TransformerJob
from vivace.plan.machines.cluster import machine_from_gpu
from vivace.plan.machines.gpu_names import known_gpu
from vivace.plan.memory.peak import Memory, memory
from vivace.plan.models.built_in import named_transformer
from vivace.plan.models.transformer import Transformer
from vivace.plan.time.step import StepTime, step_time
from vivace.records.layout import Layout

GIB = 2.0**30
COLUMNS = (
    "family",
    "batch",
    "seq_len",
    "precision",
    "recompute",
    "status",
    "step_ms_median",
    "step_ms_p10",
    "step_ms_p90",
    "predicted_step_ms",
    "step_error_pct",
    "allocated_gib",
    "reserved_gib",
    "predicted_allocated_gib",
    "predicted_reserved_gib",
    "reserved_error_pct",
    "steps",
    "gpu",
    "torch",
)


@dataclass(frozen=True)
class Family:
    name: str
    batches: tuple[int, ...]
    precision: str
    steps: int
    warmup: int
    model: str
    seq_len: int = 0
    checkpointing: bool = False
    padded: bool = True

    @property
    def is_image(self) -> bool:
        return self.seq_len == 0

    def transformer(self) -> Transformer:
        found = named_transformer(self.model)
        assert found is not None
        # Dropout is off and, unless a family says otherwise, the vocabulary padded, as people train today.
        vocab = -(-found.vocab // 64) * 64 if self.padded else found.vocab
        return replace(found, seq_len=self.seq_len, dropout=False, vocab=vocab)


FAMILIES = (
    Family("resnet50", (64, 256, 512), "bf16-amp", 30, 8, "resnet50"),
    Family("resnet152", (64, 128, 256), "bf16-amp", 20, 8, "resnet152"),
    Family("gpt2-124m", (8, 32, 64), "bf16-amp", 20, 5, "gpt2-124m", 1024),
    Family("gpt2-124m-unpadded", (8, 32), "bf16-amp", 20, 5, "gpt2-124m", 1024, padded=False),
    Family("gpt-1.3b", (2, 4, 8), "bf16-amp", 12, 4, "gpt-1.3b", 2048),
    Family("llama-3-8b-ckpt", (1, 2, 4), "bf16-pure", 6, 2, "llama-3-8b", 4096, True),
)


def predict(family: Family, batch: int, gpu: str = "h200") -> tuple[StepTime, Memory]:
    machine, precision = machine_from_gpu(known_gpu(gpu), 1).machine, PRECISIONS[family.precision]
    if family.is_image:
        job = VisionJob(traced(family.model, batch, 224, 2), machine, 1, precision, "torch", "sgd")
        return vision_step_time(job), vision_memory(job)
    layout = Layout(micro_batch=batch, recompute="full" if family.checkpointing else "none")
    asked = TransformerJob(
        family.transformer(),
        machine,
        layout,
        batch,
        family.seq_len,
        precision,
        "torch",
        "flash",
        fused_optimizer=True,
    )
    return step_time(asked), memory(asked)


def quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def make_image_step(family: Family, batch: int) -> Any:
    import torch

    from vivace.plan.images.names import image_model

    torch.backends.cudnn.benchmark = True
    maker = image_model(family.model)
    assert maker is not None
    model = maker().cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, fused=True)
    images = torch.randn(batch, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (batch,), device="cuda")
    loss_of = torch.nn.CrossEntropyLoss(label_smoothing=0.1)

    def step() -> None:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = loss_of(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def make_text_step(family: Family, batch: int) -> Any:
    import torch
    from plan_models import Decoder

    size = family.transformer()
    pure = family.precision == "bf16-pure"
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16 if pure else torch.float32)
    with torch.device("cuda"):
        model = Decoder(size, family.checkpointing)
    torch.set_default_dtype(before)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(0, size.vocab, (batch, family.seq_len + 1), device="cuda")
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    def step() -> None:
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=not pure):
            loss = model(inputs, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def measure(family: Family, batch: int) -> dict[str, Any]:
    """One case in this process. Raises when memory runs out."""
    import torch

    torch.manual_seed(0)
    step = make_image_step(family, batch) if family.is_image else make_text_step(family, batch)
    for _ in range(family.warmup):
        step()
    torch.cuda.synchronize()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(family.steps + 1)]
    marks[0].record()
    for mark in marks[1:]:
        step()
        mark.record()
    torch.cuda.synchronize()
    times = [left.elapsed_time(right) for left, right in pairwise(marks)]
    return {
        "status": "ok",
        "step_ms_median": quantile(times, 0.5),
        "step_ms_p10": quantile(times, 0.1),
        "step_ms_p90": quantile(times, 0.9),
        "allocated_gib": torch.cuda.max_memory_allocated() / GIB,
        "reserved_gib": torch.cuda.max_memory_reserved() / GIB,
        "steps": family.steps,
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
    }


def worker(name: str) -> None:
    """All batches of one family; one JSON line each on standard output."""
    import gc

    import torch

    family = next(one for one in FAMILIES if one.name == name)
    for batch in family.batches:
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        try:
            result = measure(family, batch)
        except torch.cuda.OutOfMemoryError:
            result = {"status": "out of memory"}
        print("RESULT " + json.dumps({"batch": batch, **result}), flush=True)


def run_family(family: Family, limit_s: float) -> list[dict[str, Any]]:
    """The family in a process of its own; what it printed before a crash still counts."""
    command = [sys.executable, __file__, "--worker", family.name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
        text, error = done.stdout, done.stderr
    except subprocess.TimeoutExpired as late:
        text = late.stdout.decode() if isinstance(late.stdout, bytes) else (late.stdout or "")
        error = f"stopped after {limit_s:.0f} s"
    found = [json.loads(line[7:]) for line in text.splitlines() if line.startswith("RESULT ")]
    missing = [batch for batch in family.batches if batch not in {one["batch"] for one in found}]
    reason = error.strip().splitlines()[-1] if error.strip() else "no result"
    return found + [{"batch": batch, "status": f"failed: {reason}"[:200]} for batch in missing]


def row_of(family: Family, result: dict[str, Any]) -> dict[str, Any]:
    step, need = predict(family, result["batch"])
    row: dict[str, Any] = {
        "family": family.name,
        "seq_len": family.seq_len or "",
        "precision": family.precision,
        "recompute": "full" if family.checkpointing else "none",
        "predicted_step_ms": step.total * 1e3,
        "predicted_allocated_gib": need.allocated_gib,
        "predicted_reserved_gib": need.reserved_gib,
        **result,
    }
    if result["status"] == "ok":
        row["step_error_pct"] = 100 * (step.total * 1e3 / result["step_ms_median"] - 1)
        row["reserved_error_pct"] = 100 * (need.reserved_gib / result["reserved_gib"] - 1)
    return row


def show(row: dict[str, Any]) -> None:
    text = f"{row['family']} batch {row['batch']}: {row['status']}"
    if "step_error_pct" in row:
        text += (
            f", {row['step_ms_median']:.1f} ms (plan {row['predicted_step_ms']:.1f}, "
            f"{row['step_error_pct']:+.1f} %)"
            f", reserved {row['reserved_gib']:.2f} GiB (plan {row['predicted_reserved_gib']:.2f}, "
            f"{row['reserved_error_pct']:+.1f} %), allocated {row['allocated_gib']:.2f} "
            f"(plan {row['predicted_allocated_gib']:.2f})"
        )
    print(text, flush=True)


MEASURED = ("status", "step_ms_median", "step_ms_p10", "step_ms_p90", "allocated_gib", "reserved_gib", "steps")


def measured_on_file(row: dict[str, str]) -> dict[str, Any]:
    """What ``measure`` gave, out of a row of the CSV."""
    found: dict[str, Any] = {name: row[name] for name in ("gpu", "torch", "status")}
    found |= {name: float(row[name]) for name in MEASURED[1:] if row[name]}
    return {**found, "batch": int(row["batch"]), "steps": int(row["steps"] or 0)}


def beside(out: Path, measured: Path) -> None:
    """Today's predictions beside the measurements of an earlier run, and a table of both in Markdown."""
    families = {family.name: family for family in FAMILIES}
    with measured.open(newline="", encoding="utf-8") as file:
        old = list(csv.DictReader(file))
    new = [row_of(families[row["family"]], measured_on_file(row)) for row in old]
    with out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: _rounded(row.get(name, "")) for name in COLUMNS} for row in new)
    print("| model | batch | step measured | before | after | reserved measured | before | after |")
    print("|---|---|---|---|---|---|---|---|")
    for before, after in zip(old, new, strict=True):
        if after["status"] != "ok":
            continue
        cells = [
            f"{after['step_ms_median']:.1f} ms",
            f"{float(before['step_error_pct']):+.1f} %",
            f"{after['step_error_pct']:+.1f} %",
            f"{after['reserved_gib']:.1f} GiB",
            f"{float(before['reserved_error_pct']):+.1f} %",
            f"{after['reserved_error_pct']:+.1f} %",
        ]
        print(f"| {after['family']} | {after['batch']} | " + " | ".join(cells) + " |")


def main() -> None:
    arguments = sys.argv[1:]
    if arguments[:1] == ["--worker"]:
        worker(arguments[1])
        return
    if arguments[1:2] == ["--beside"] and len(arguments) == 3:
        beside(Path(arguments[0]), Path(arguments[2]))
        return
    only_predict = "--predict" in arguments
    arguments = [one for one in arguments if one != "--predict"]
    if not arguments:
        sys.exit(__doc__)
    chosen = [one for one in FAMILIES if not arguments[1:] or one.name in arguments[1:]]
    start = time.monotonic()
    with Path(arguments[0]).open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
        writer.writeheader()
        for family in chosen:
            print(f"--- {family.name} ({time.monotonic() - start:.0f} s)", flush=True)
            if only_predict:
                results = [{"batch": batch, "status": "predicted only"} for batch in family.batches]
            else:
                results = run_family(family, limit_s=150)
            for result in results:
                row = row_of(family, result)
                show(row)
                writer.writerow({name: _rounded(row.get(name, "")) for name in COLUMNS})
            file.flush()
    print(f"done in {time.monotonic() - start:.0f} s", flush=True)


def _rounded(value: Any) -> Any:
    return round(value, 3) if isinstance(value, float) else value


if __name__ == "__main__":
    main()
