"""Tensor parallelism: DTensor plans by module names, with sequence and loss parallelism for our GPT.

Per block: queries, keys, values and the way up are split by columns, what leads back to the residual stream by rows, so
a block talks four times a step (Megatron). With sequence parallelism, norms and residuals are split along the tokens.
Everything between modules is a plain local tensor.
"""

from __future__ import annotations

import fnmatch
from typing import Any

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

__all__ = ["Replicated", "gpt_plan", "split_tensors"]

Plan = dict[str, ParallelStyle]


def split_tensors(model: nn.Module, mesh: DeviceMesh, sequence_parallel: bool) -> None:
    """Turn the parameters of our GPT into DTensors on ``mesh``. The model is whole, and on the meta device."""
    names = [name for name, _ in model.named_modules()]
    plan = {
        pattern: style
        for pattern, style in gpt_plan(sequence_parallel).items()
        if fnmatch.filter(names, pattern)  # not every GPT has a gate, or learned positions
    }
    parallelize_module(model, mesh, plan)


def gpt_plan(sequence_parallel: bool) -> Plan:
    """Logits stay split over the vocabulary: the loss is computed where they are (``loss_parallel``)."""
    between = Shard(1) if sequence_parallel else Replicate()
    norm = SequenceParallel if sequence_parallel else Replicated
    plan: Plan = {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=between),
        "positions": RowwiseParallel(input_layouts=Replicate(), output_layouts=between),
        "blocks.*.attention_norm": norm(),
        "blocks.*.attention.query": ColwiseParallel(),
        "blocks.*.attention.key": ColwiseParallel(),
        "blocks.*.attention.value": ColwiseParallel(),
        "blocks.*.attention.out": RowwiseParallel(output_layouts=between),
        "blocks.*.ffn_norm": norm(),
        "blocks.*.ffn.up": ColwiseParallel(),
        "blocks.*.ffn.gate": ColwiseParallel(),
        "blocks.*.ffn.down": RowwiseParallel(output_layouts=between),
        "norm": norm(),
        "output": ColwiseParallel(input_layouts=between, output_layouts=Shard(-1), use_local_output=False),
    }
    # Once for the three projections, and for the gate and the way up: forward one gather, backward one sum.
    plan["blocks.*.ffn"] = PrepareModuleInput(input_layouts=(between,), desired_input_layouts=(Replicate(),))
    plan["blocks.*.attention"] = PrepareModuleInput(
        input_layouts=(between, None), desired_input_layouts=(Replicate(), None)
    )
    return plan


class Replicated(ParallelStyle):
    """A module that every rank computes in full, as DTensors: an optimizer takes no mixture of them and tensors."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        def enter(_module: nn.Module, inputs: Any, mesh: DeviceMesh) -> Any:
            return tuple(
                DTensor.from_local(each, mesh, [Replicate()], run_check=False)
                if isinstance(each, Tensor) and not isinstance(each, DTensor)
                else each
                for each in inputs
            )

        def leave(_module: nn.Module, output: Any, _mesh: DeviceMesh) -> Any:
            return output.to_local() if isinstance(output, DTensor) else output

        return distribute_module(module, device_mesh, None, enter, leave)
