"""Model and optimizers as DCP saves them: under the model's own parameter names, for any layout.

``torch.distributed.checkpoint.state_dict`` looks through DDP, FSDP2 and compile, keeps sharded tensors sharded, and
makes the optimizer's state before it is loaded (a fresh optimizer has none, and DCP would load nothing into it).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

__all__ = ["Trained"]


class Trained:
    """One entry of a checkpoint's state: ``{"trained": Trained(model, optimizer)}``."""

    def __init__(
        self, model: torch.nn.Module, optimizers: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] = ()
    ) -> None:
        self.model = model
        self.optimizers = (
            (optimizers,) if isinstance(optimizers, torch.optim.Optimizer) else tuple(optimizers)
        )  # fmt: skip

    def state_dict(self) -> dict[str, Any]:
        model, optimizers = get_state_dict(self.model, self.optimizers)
        return {"model": model, "optimizers": optimizers} if self.optimizers else {"model": model}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        set_state_dict(
            self.model,
            self.optimizers,
            model_state_dict=state["model"],
            optim_state_dict=state.get("optimizers", {}),
        )
