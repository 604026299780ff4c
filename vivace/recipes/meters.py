"""MFU and energy of a training, where the hardware is known and has a meter. On a CPU there is neither."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn

from vivace.hardware.catalogue import find_gpu
from vivace.hardware.specs import peak_tflops
from vivace.measure.inside.facts.energy import EnergyMeter
from vivace.measure.inside.facts.provenance import describe_devices
from vivace.recipes.models import logits_of

__all__ = ["Meters", "flops_per_sample"]


def flops_per_sample(model: nn.Module, inputs: Tensor) -> float | None:
    """Forward and backward of one sample, counted by torch; None where the model cannot be counted so.

    In evaluation mode, so that no statistics and no random numbers change. Before the model is compiled.
    """
    from torch.utils.flop_counter import FlopCounterMode

    model.eval()
    try:
        with FlopCounterMode(display=False) as counter:
            logits_of(model(inputs[:1])).float().sum().backward()
    except (RuntimeError, TypeError, ValueError, AttributeError):  # a model that does not take one sample
        return None
    finally:
        model.train()
        model.zero_grad(set_to_none=True)
    return float(counter.get_total_flops()) or None


class Meters:
    def __init__(self, device: torch.device, precision: str, flops: float | None) -> None:
        self._flops = flops
        self._ranks = dist.get_world_size() if dist.is_initialized() else 1
        self._peak: float | None = None
        uuids: list[str] = []
        if device.type == "cuda":
            self._peak = peak_flops(torch.cuda.get_device_name(device), precision)
            uuids = [each.uuid for each in describe_devices([device.index or 0])]
        self._energy = EnergyMeter(uuids)
        self._first_j = self._energy.total_joules()

    def mfu(self, samples_per_s: float) -> float | None:
        """Counted FLOP/s over the dense peak of the GPUs in the precision of the matrices."""
        if self._flops is None or self._peak is None:
            return None
        return samples_per_s * self._flops / (self._peak * self._ranks)

    def joules(self) -> float | None:
        """Of this rank's GPU, since the start."""
        now = self._energy.total_joules()
        return None if now is None or self._first_j is None else now - self._first_j


def peak_flops(gpu: str, precision: str) -> float | None:
    spec = find_gpu(gpu)
    peak = peak_tflops(spec, precision) if spec is not None else None
    return None if peak is None else peak * 1e12
