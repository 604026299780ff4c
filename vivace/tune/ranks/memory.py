"""What a rank keeps of parameters, gradients and optimizer states in each way of splitting. Pure arithmetic.

ddp keeps all of them on every rank; zero1 shares out the states; fsdp shares out all three, and puts a block's
parameters together while it computes (ZeRO stages 1 and 3, arXiv 1910.02054).
"""

from __future__ import annotations

from vivace.records.measurement import Measurement
from vivace.records.scale_check import MemoryOfMode

__all__ = ["memory_by_mode", "states_per_parameter"]

_GIB = 2**30
_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
# Tensors of the parameter's size that torch.optim keeps; what a setting adds comes on top.
_STATES = {
    "Adam": 2, "AdamW": 2, "NAdam": 2, "RAdam": 2, "Adamax": 2, "SparseAdam": 2, "SGD": 0, "RMSprop": 1, "Adagrad": 1,
    "Adadelta": 2, "ASGD": 1, "Rprop": 2, "Adafactor": 0, "Muon": 1,
}  # fmt: skip


def memory_by_mode(m: Measurement, ranks: int) -> tuple[tuple[MemoryOfMode, ...], tuple[str, ...]]:
    """For ``ranks`` ranks, with what had to be assumed. None of it where the parameters are not known."""
    if not m.parameters:
        return (), ("the number of parameters is not known",)
    size, assumed = _bytes_per_parameter(m)
    trainable = m.trainable_parameters if m.trainable_parameters is not None else m.parameters
    states, more = states_per_parameter(m)
    parameters, gradients = m.parameters * size / _GIB, trainable * size / _GIB
    kept = trainable * size * states / _GIB
    block = _largest_block_gib(m, size)
    return (
        MemoryOfMode(mode="ddp", parameters_gib=parameters, gradients_gib=gradients, states_gib=kept),
        MemoryOfMode(mode="zero1", parameters_gib=parameters, gradients_gib=gradients, states_gib=kept / ranks),
        MemoryOfMode(
            mode="fsdp", parameters_gib=parameters / ranks, gradients_gib=gradients / ranks, states_gib=kept / ranks,
            block_gib=block,
        ),
    ), (*assumed, *more)  # fmt: skip


def _bytes_per_parameter(m: Measurement) -> tuple[float, tuple[str, ...]]:
    known = {name: count for name, count in m.structure.parameter_dtypes.items() if name in _BYTES}
    total = sum(known.values())
    if not total:
        return 4.0, ("parameters are taken for fp32",)
    return sum(_BYTES[name] * count for name, count in known.items()) / total, ()


def states_per_parameter(m: Measurement) -> tuple[float, tuple[str, ...]]:
    """Of the optimizers that were seen, the one that keeps most."""
    settings: dict[str, float] = {}
    if m.first_steps is not None and m.first_steps.steps and m.first_steps.steps[0].settings:
        settings = m.first_steps.steps[0].settings[0]
    found, unknown = [], []
    for optimizer in m.structure.optimizers:
        if optimizer.name not in _STATES:
            unknown.append(optimizer.name)
            continue
        more = bool(settings.get("momentum")) if optimizer.name in ("SGD", "RMSprop") else False
        found.append(_STATES[optimizer.name] + more + bool(settings.get("amsgrad")) + bool(settings.get("centered")))
    notes = tuple(f"the states of {name} are not known and not counted" for name in dict.fromkeys(unknown))
    return float(max(found, default=0)), notes


def _largest_block_gib(m: Measurement, size: float) -> float:
    """fsdp puts one repeated block together at a time; without repeated blocks the whole model."""
    blocks = max(m.structure.repeated_blocks.values(), default=1)
    return (m.parameters or 0) * size / max(1, blocks) / _GIB
