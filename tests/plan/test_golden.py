"""Plans frozen as data: a change of formula or constant shows here, and is then taken over on purpose.

python tests/plan/test_golden.py        writes the present figures to data/golden.json
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vivace.plan.answering.answer import plan_transformer
from vivace.plan.answering.find_model import find_model
from vivace.plan.answering.find_site import find_site
from vivace.plan.answering.make_job import transformer_job
from vivace.plan.answering.request import LayoutRequest, Request

FILE = Path(__file__).parent / "data" / "golden.json"
CASES = {
    "gpt2-124m on one H200": Request("gpt2-124m", gpu="h200", global_batch=32, layout=LayoutRequest(micro_batch=32)),
    "llama-3-8b FSDP on 8 H100": Request(
        "llama-3-8b",
        gpu="h100",
        gpus=8,
        global_batch=16,
        layout=LayoutRequest(zero=3, micro_batch=1, recompute="full"),
    ),
    "gpt-175b on 64 A100": Request(
        "gpt-175b",
        cluster="dgx-a100",
        gpus=64,
        global_batch=64,
        layout=LayoutRequest(tensor=8, pipeline=8, virtual_stages=3),
    ),
    "bloom-176b on 384 A100 of Jean Zay": Request(
        "bloom-176b",
        cluster="jean-zay-a100",
        gpus=384,
        global_batch=2048,
        attention="fused-softmax",
        layout=LayoutRequest(tensor=4, pipeline=12, micro_batch=2, recompute="full"),
    ),
    "llama-3-8b, 128k tokens, context parallel": Request(
        "llama-3-8b",
        cluster="dgx-h100",
        gpus=32,
        global_batch=8,
        seq_len=131_072,
        layout=LayoutRequest(tensor=4, context=8, recompute="full"),
    ),
}


def figures(request: Request) -> dict[str, float]:
    site, model = find_site(request), find_model(request)
    job, _ = transformer_job(request, model, site)
    plan = plan_transformer(job, site)
    return {
        "step_ms": plan.step_ms.estimate,
        "memory_gib": plan.memory_gib.estimate,
        "mfu_pct": plan.mfu_pct,
        "hfu_pct": plan.hfu_pct,
    }


@pytest.mark.parametrize("name", CASES)
def test_figures_are_those_on_file(name):
    golden = json.loads(FILE.read_text(encoding="utf-8"))
    assert figures(CASES[name]) == pytest.approx(golden[name], rel=1e-3)


if __name__ == "__main__":
    FILE.write_text(json.dumps({name: figures(request) for name, request in CASES.items()}, indent=2) + "\n")
