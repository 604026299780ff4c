"""What the first optimizer steps were made of: batches, modes of the model, gradients, updates. A few hundred numbers.

Two runs with the same seed have the same weights and the same batch at their first step. What differs there is what was
changed between the two runs, and nothing else. So a practice can be judged by its first steps (``tune/harm``).

All of it happens while the loop warms up, before anything is timed: it may wait for the GPU. Weights are not copied: an
update is the difference of two sketches (``sketch.py``).
"""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch

from vivace.measure.inside.comparing.sketch import BUCKETS, Sketcher, digest_of, folded

__all__ = ["STEPS", "FirstSteps"]

STEPS = 4  # of each optimizer
_PARTS = 32  # neighbouring parameters are put together in so many parts
_FLOATS = 512  # of a sketch of the first step, over all parts
_LATER_BUCKETS = 128  # later steps are not told apart by part
_FORWARDS = 64  # of all first steps together
_BATCHES = 16  # of each loader
_GROUPS = 8  # parameter groups of an optimizer whose settings are kept
_NEAR_ZERO = 1e-5  # of the largest parameter's gradient
_NAMED = 8  # parameters that are named, of those that stand out
# How an update is computed is not what it is.
_NOT_SETTINGS = ("params", "foreach", "fused", "capturable", "differentiable")


class FirstSteps:
    """``wanted`` until the window opens; then, and in forked children, every method returns at once."""

    def __init__(self, wanted: bool) -> None:
        self.wanted = wanted
        self.inside = False  # a forward is being looked at
        self.steps: list[dict[str, Any]] = []
        self.forwards: list[dict[str, Any]] = []
        self.batches: list[list[str]] = []
        self._loaders: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._counts: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._numbers: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._last: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()
        self.roots: WeakSet[torch.nn.Module] = WeakSet()
        self._sketcher = Sketcher()
        os.register_at_fork(after_in_child=self.close)

    def close(self) -> None:
        """Before the first timed step."""
        self.wanted = False
        self._last.clear()
        self._sketcher = Sketcher()

    # -- what comes in -----------------------------------------------------------------------------------------------

    def note_epoch(self, loader: Any, iterator: Any) -> None:
        """An epoch begins. Of one loader, all of them count together: workers that are kept keep their iterator."""
        if not self.wanted:
            return
        with contextlib.suppress(Exception):
            if loader not in self._loaders:
                self._loaders[loader] = len(self.batches)
                self.batches.append([])
            iterator._vivace_number = self._loaders[loader]

    def note_batch(self, iterator: Any, batch: Any) -> None:
        """A batch as its loader hands it out, labels included."""
        if not self.wanted:
            return
        with contextlib.suppress(Exception), torch.no_grad():
            digests = self.batches[iterator._vivace_number]
            if len(digests) < _BATCHES:
                digests.append(_hex(digest_of(batch)))

    def note_forward(self, root: torch.nn.Module, args: Any, kwargs: Any) -> None:
        """A root is about to be called with gradients on."""
        if not self.wanted or len(self.forwards) >= _FORWARDS or _is_capturing():
            return
        with contextlib.suppress(Exception), torch.no_grad():
            self.roots.add(root)
            self.forwards.append({
                "after_steps": len(self.steps), "digest": _hex(digest_of((args, kwargs))), **_modes(root)
            })  # fmt: skip

    # -- a step ------------------------------------------------------------------------------------------------------

    def before(self, optimizer: Any) -> bool:
        """Right before an optimizer steps: the gradients as it will see them, the weights, its settings. The step
        before it is whole now: what its weights have changed by, the optimizer's doing or not, is its update.

        True where something was looked at, which takes time.
        """
        if not self.wanted or self._counts.get(optimizer, 0) > STEPS or _is_capturing():
            return False
        with contextlib.suppress(Exception), torch.no_grad():
            self._look(optimizer)
        return True

    def _look(self, optimizer: Any) -> None:
        count = self._counts.get(optimizer, 0)
        self._counts[optimizer] = count + 1
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        weights = [self._sketcher.sketch(p, i) for i, p in enumerate(parameters)]
        last = self._last.pop(optimizer, None)
        if last is not None and len(last["weights"]) == len(weights):
            updates = list(map(torch.sub, weights, last.pop("weights")))
            last["step"].update(_described_update(updates, last["norms"], last["names"], last["first"]))
        if count == STEPS:
            return
        self._numbers.setdefault(optimizer, len(self._numbers))
        first, names = count == 0, self._names(parameters)
        sketches, norms = self._gradients(optimizer, parameters)
        step = {
            "optimizer": self._numbers[optimizer],
            "parameters": len(parameters),
            "trainable": sum(p.requires_grad for p in parameters),
            "dtypes": sorted({str(p.dtype).replace("torch.", "") for p in parameters}),
            "without_gradient": sum(p.grad is None for p in parameters),
            "settings": [_settings_of(group) for group in optimizer.param_groups[:_GROUPS]],
            **_described_gradients(parameters, sketches, norms, names, first),
        }
        self.steps.append(step)
        self._last[optimizer] = {"step": step, "weights": weights, "norms": norms, "names": names, "first": first}

    def _gradients(self, optimizer: Any, parameters: list[torch.Tensor]) -> tuple[list[torch.Tensor], list[float]]:
        """Unscaled, where a fused optimizer divides by a scaler's scale in its own kernel."""
        scale = getattr(optimizer, "grad_scale", None)
        sketches, norms = [], []
        for number, parameter in enumerate(parameters):
            gradient = parameter.grad if parameter.grad is not None else parameter.new_zeros(1)
            sketch, norm = self._sketcher.sketch(gradient, number), self._sketcher.norm(gradient)
            if scale is not None:
                sketch, norm = sketch / scale.to(sketch.device), norm / scale.to(norm.device)
            sketches.append(sketch)
            norms.append(norm)
        return sketches, _on_one_device(norms).tolist()

    def _names(self, parameters: list[torch.Tensor]) -> list[str]:
        names = {id(p): name for root in self.roots for name, p in root.named_parameters()}
        return [names.get(id(p), f"parameter {i}") for i, p in enumerate(parameters)]

    # -- the record --------------------------------------------------------------------------------------------------

    def as_dict(self) -> dict[str, Any] | None:
        """None where no step was looked at."""
        if not self.steps:
            return None
        return {"steps": self.steps, "forwards": self.forwards, "batches": self.batches}


def _is_capturing() -> bool:
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def _modes(root: torch.nn.Module) -> dict[str, Any]:
    """What a model does otherwise in training than in validation, and the norms and dropouts that are told apart."""
    norms, dropouts = [], []
    for module in root.modules():
        if isinstance(module, torch.nn.modules.batchnorm._NormBase):
            norms.append(module.training)
        elif isinstance(module, torch.nn.modules.dropout._DropoutNd):
            dropouts.append(module.p if module.training else 0.0)
    return {
        "norms_training": sum(norms),
        "norms_evaluating": len(norms) - sum(norms),
        "dropouts": len(dropouts),
        "dropout_sum": float(sum(dropouts)),
    }


def _settings_of(group: dict[str, Any]) -> dict[str, float]:
    """The numbers among an optimizer's settings; of pairs (betas) both."""
    numbers: dict[str, float] = {}
    for name, value in group.items():
        if name in _NOT_SETTINGS:
            continue
        for number, item in enumerate(value if isinstance(value, (tuple, list)) else (value,)):
            with contextlib.suppress(Exception):
                numbers[f"{name}{number or ''}"] = float(item)
    return numbers


def _on_one_device(numbers: list[torch.Tensor]) -> torch.Tensor:
    device = numbers[0].device
    return torch.stack([number.to(device) for number in numbers])


def _in_parts(sketches: list[torch.Tensor], first: bool) -> torch.Tensor:
    """Of the first step one sketch a part; of a later one a single sketch."""
    stacked = _on_one_device(sketches)
    if not first:
        return folded(stacked.sum(0, keepdim=True), _LATER_BUCKETS)
    parts = min(len(sketches), _PARTS)
    total = torch.zeros(parts, BUCKETS, dtype=torch.float64, device=stacked.device)
    places = [part_of(i, len(sketches)) for i in range(len(sketches))]
    total.index_add_(0, torch.tensor(places, device=stacked.device), stacked)
    return folded(total, _buckets_of(parts))


def part_of(number: int, parameters: int) -> int:
    return number * min(parameters, _PARTS) // parameters


def _buckets_of(parts: int) -> int:
    buckets = BUCKETS
    while buckets * parts > _FLOATS and buckets > 16:
        buckets //= 2
    return buckets


def _described_gradients(
    parameters: list[torch.Tensor], sketches: list[torch.Tensor], norms: list[float], names: list[str], first: bool
) -> dict[str, Any]:
    sketch = _in_parts(sketches, first)
    squares = [0.0] * sketch.shape[0]
    for number, norm in enumerate(norms):
        squares[part_of(number, len(norms)) if first else 0] += norm**2
    return {
        "zero_gradient": sum(norms[i] == 0 and p.grad is not None for i, p in enumerate(parameters)),
        "part_names": _part_names(names) if first else ["all"],
        "norms": [_short(square**0.5) for square in squares],
        "gradient": _rows(sketch),
        "gradient_digest": _crc(norms, sketch),
    }


def _described_update(updates: list[torch.Tensor], norms: list[float], names: list[str], first: bool) -> dict[str, Any]:
    """A parameter whose gradient is nothing but rounding (a bias before a batch norm) may move or not, by chance."""
    sketch = _in_parts(updates, first)
    distances = _on_one_device([update.norm() for update in updates]).tolist()
    least = _NEAR_ZERO * max(norms)
    still = [i for i, distance in enumerate(distances) if distance == 0 and norms[i] >= least]
    return {
        "unchanged": len(still),
        "stand_still": [names[i] for i in still[:_NAMED]],
        "update": _rows(sketch),
        "update_digest": _crc(distances, sketch),
    }


def _rows(sketch: torch.Tensor) -> list[list[float]]:
    return [[_short(value) for value in row] for row in sketch.tolist()]


def _part_names(names: list[str]) -> list[str]:
    """Each part by its first parameter, and how many more it holds."""
    members: dict[int, list[str]] = {}
    for number, name in enumerate(names):
        members.setdefault(part_of(number, len(names)), []).append(name)
    return [m[0] if len(m) == 1 else f"{m[0]} and {len(m) - 1} more" for _, m in sorted(members.items())]


def _short(value: float) -> float:
    return float(f"{value:.8g}")


def _crc(norms: list[float], sketch: torch.Tensor) -> str:
    numbers = [*norms, *sketch.reshape(-1).tolist()]
    return f"{zlib.crc32(struct.pack(f'<{len(numbers)}d', *numbers)):08x}"


def _hex(digest: int) -> str:
    return f"{digest & 0xFFFFFFFFFFFFFFFF:016x}"
