"""Jobs that several tests ask about."""

from __future__ import annotations

from dataclasses import replace

import pytest

from vivace.plan.facts.precision import PRECISIONS
from vivace.plan.jobs.job import TransformerJob
from vivace.plan.machines.cluster import Site, machine_for
from vivace.plan.models.built_in import named_transformer
from vivace.records.layout import Layout


@pytest.fixture
def dgx() -> Site:
    return machine_for("dgx-a100")


@pytest.fixture
def make_job(dgx):
    """A job on DGX A100 nodes; keywords replace fields of the job or of its layout."""

    def make(model: str = "gpt-22b", **changes) -> TransformerJob:
        layout_fields = {key: changes.pop(key) for key in list(changes) if key in Layout.__dataclass_fields__}
        found = named_transformer(model)
        job = TransformerJob(
            model=found,
            machine=dgx.machine,
            layout=replace(Layout(), **layout_fields),
            global_batch=changes.pop("global_batch", 8),
            seq_len=found.seq_len,
            precision=PRECISIONS[changes.pop("precision", "fp16-mixed")],
            software="megatron",
            attention="fused-softmax",
        )
        return replace(job, **changes)

    return make
