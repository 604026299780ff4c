"""The batch size that a run really had. Throughput is counted in samples: without it nothing can be compared."""

from __future__ import annotations

from vivace.errors import UserError
from vivace.records.measurement import Measurement

__all__ = ["check_batch_is_known", "micro_batch"]


def check_batch_is_known(record: Measurement) -> None:
    if record.batch_size is None or record.samples_per_s is None:
        raise UserError(
            "no batch size could be read from the inputs of the model, so nothing that is run can be compared",
            hint="`vivace measure -- COMMAND` shows what could be read",
        )


def micro_batch(record: Measurement) -> int:
    """Samples per forward: with accumulation, the flag may be about these."""
    check_batch_is_known(record)
    assert record.batch_size is not None
    parts = record.micro_batches or 1.0
    return round(record.batch_size / parts) if record.optimizers <= 1 and parts >= 1 else record.batch_size
