"""Claim: `vivace plan --search` ranks all legal layouts for 4,096 GPUs in under ten seconds.

python benchmarks/plan_search.py [OUT.csv]
"""

from __future__ import annotations

import csv
import sys
import time
from pathlib import Path

from vivace.plan.facts.precision import PRECISIONS
from vivace.plan.jobs.job import TransformerJob
from vivace.plan.layouts.search import legal_layouts, search
from vivace.plan.machines.cluster import machine_for
from vivace.plan.models.built_in import named_transformer
from vivace.records.layout import Layout

CASES = (
    ("llama-3-8b", "jean-zay-h100", 256, 1024),
    ("llama-3-70b", "dgx-h100", 1024, 2048),
    ("gpt-175b", "dgx-a100", 1024, 1536),
    ("llama-3-405b", "dgx-h100", 4096, 2048),
    ("llama-3-8b", "dgx-h100", 4096, 8192),
    ("gpt-1t", "dgx-h100", 4096, 4096),
)


def main() -> None:
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "results" / "plan_search.csv"
    with out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("model", "cluster", "gpus", "global_batch", "layouts", "seconds", "best", "step_s"))
        for name, cluster, gpus, batch in CASES:
            model = named_transformer(name)
            assert model is not None
            machine = machine_for(cluster).machine
            job = TransformerJob(model, machine, Layout(), batch, model.seq_len, PRECISIONS["bf16-amp"], "compiled")
            start = time.perf_counter()
            best = search(job, gpus, keep=1)[0]
            seconds = time.perf_counter() - start
            count = sum(1 for _ in legal_layouts(job, gpus))
            row = (
                name,
                cluster,
                gpus,
                batch,
                count,
                f"{seconds:.3f}",
                best.job.layout,
                f"{best.seconds:.3f}",
            )
            print(*row, flush=True)
            writer.writerow(row)


if __name__ == "__main__":
    main()
