"""``Training``: a model on its layout, its optimizers, its batches, and one step. Made from settings, in every process.

``state_dict`` and ``load_state_dict`` are for torch.distributed.checkpoint: names are those of the whole model, values
are DTensors or tensors of this rank, whatever the layout.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

from vivace.parallel.context import positions_of
from vivace.parallel.mesh import Meshes, make_meshes
from vivace.parallel.norm import clip_gradients, gradient_norm, settle_gradients
from vivace.parallel.parallelize import parallelize
from vivace.parallel.running import Runner, make_runner
from vivace.parallel.tied import COPY, ORIGINAL, TiedCopies, tie
from vivace.train.batches import Batches, make_batches
from vivace.train.models.gpt import GPT
from vivace.train.models.initial import fill, gpt_rule, resnet_rule
from vivace.train.models.resnet import by_name
from vivace.train.models.sync_batch_norm import synchronised
from vivace.train.settings import OptimSettings, TrainSettings

__all__ = ["Training", "build", "learning_rate"]

_OPTIMIZER = StateDictOptions(flatten_optimizer_state_dict=True)  # by names, so that stages can be put together


@dataclass
class Training:
    settings: TrainSettings
    meshes: Meshes
    stages: list[nn.Module]
    optimizers: list[torch.optim.Optimizer]
    run: Runner
    batches: Batches
    copies: TiedCopies | None = None
    """Of tied weights in a pipeline."""
    step: int = 0
    """Steps done; also the position in the data."""

    def take_step(self) -> tuple[Tensor | None, Tensor]:
        """Train on the next batch: this rank's loss (None without the last stage), and the norm of all gradients."""
        settings = self.settings
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(self.step, settings.optim, settings.steps)
        loss = self.run(*self.batches.share(self.step))
        settle_gradients(self.parameters())
        if self.copies is not None:
            self.copies.sum_gradients()
        norm = gradient_norm(self._counted(), self.meshes.pipeline, self.meshes.device)
        if settings.optim.clip_norm is not None:
            clip_gradients(self.parameters(), norm, settings.optim.clip_norm)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad()
        self.step += 1
        return loss, norm

    def _counted(self) -> Iterator[nn.Parameter]:
        """Every parameter of the model once: not the second copy of a tied one."""
        copy = self.copies.copy if self.copies is not None else None
        return (parameter for parameter in self.parameters() if parameter is not copy)

    def parameters(self) -> itertools.chain[nn.Parameter]:
        return itertools.chain.from_iterable(stage.parameters() for stage in self.stages)

    def count_parameters(self) -> int:
        """Of the whole model; every rank must ask. DTensors know their whole size; stages are added up."""
        mine = torch.tensor(sum(parameter.numel() for parameter in self._counted()), device=self.meshes.device)
        if self.meshes.pipeline.size() > 1:
            dist.all_reduce(mine, group=self.meshes.pipeline.get_group())
        return int(mine)

    def state_dict(self) -> dict[str, Any]:
        """Weights, optimizer states and the step, ready for ``dcp.save`` on every rank."""
        model: dict[str, Any] = {}
        optimizer: dict[str, Any] = {}
        for stage, stepper in zip(self.stages, self.optimizers, strict=True):
            model.update(get_model_state_dict(stage))
            optimizer.update(get_optimizer_state_dict(stage, stepper, options=_OPTIMIZER))
        if self.settings.sizes.tied:
            model, optimizer = _once(model), _once(optimizer)
        return {"model": model, "optimizer": optimizer, "step": self.step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for stage, stepper in zip(self.stages, self.optimizers, strict=True):
            loose = StateDictOptions(strict=False)  # a stage takes what it has of the whole
            model, optimizer = state["model"], state["optimizer"]
            if self.copies is not None and getattr(stage, "output", None) is not None:
                model, optimizer = _twice(model), _twice(optimizer)
            set_model_state_dict(stage, model, options=loose)
            set_optimizer_state_dict(stage, stepper, optimizer, options=_OPTIMIZER)
        self.step = int(state["step"])


def _once(state: dict[str, Any]) -> dict[str, Any]:
    """Tied weights under the embedding's name alone, however many stages hold them."""
    return {name.replace(COPY, ORIGINAL): value for name, value in state.items()}


def _twice(state: dict[str, Any]) -> dict[str, Any]:
    """For the last stage, which knows them by the output's name. Clones: its optimizer changes its own states."""
    copies = {
        name.replace(ORIGINAL, COPY): value.clone() if isinstance(value, Tensor) else value
        for name, value in state.items()
        if ORIGINAL in name
    }
    return {**state, **copies}


def learning_rate(step: int, optim: OptimSettings, steps: int) -> float:
    """A function of the step alone: nothing to save. Linear warm-up, then the decay to ``final_share`` of ``lr``."""
    if step < optim.warmup_steps:
        return optim.lr * (step + 1) / (optim.warmup_steps + 1)
    if optim.decay == "none":
        return optim.lr
    done = (step - optim.warmup_steps) / max(1, steps - 1 - optim.warmup_steps)
    falling = 0.5 * (1 + math.cos(math.pi * min(1.0, done))) if optim.decay == "cosine" else 1 - min(1.0, done)
    return optim.lr * (optim.final_share + (1 - optim.final_share) * falling)


def build(settings: TrainSettings) -> Training:
    """The whole training of this rank; the process group exists."""
    layout, meshes = settings.layout, make_meshes(settings.layout)
    micro_batches = layout.micro_batches(settings.global_batch)
    model = _model(settings, meshes)
    stages = parallelize(
        model, layout, meshes, settings.engine, micro_batches > 1, lambda stage: _fill(stage, settings, meshes)
    )
    runner = make_runner(stages, layout, meshes, settings.engine, micro_batches, _loss)
    optimizers = [_optimizer(stage, settings.optim, meshes) for stage in stages]
    copies = TiedCopies(stages, layout, meshes.pipeline) if settings.sizes.tied and layout.pipeline > 1 else None
    return Training(settings, meshes, stages, optimizers, runner, make_batches(settings, meshes), copies)


def _model(settings: TrainSettings, meshes: Meshes) -> nn.Module:
    dtype = torch.float64 if settings.engine.precision == "fp64" else torch.float32
    if settings.model == "gpt":
        with torch.device("meta"):
            return GPT(settings.sizes, settings.data.seq_len).to(dtype)
    model: nn.Module = by_name(settings.model, settings.data.classes).to(meshes.device, dtype)
    return synchronised(model, meshes.device) if settings.engine.sync_batch_norm else model


def _fill(stage: nn.Module, settings: TrainSettings, meshes: Meshes) -> None:
    """Memory, where there is none yet, and first values."""
    if any(parameter.is_meta for parameter in stage.parameters()):
        stage.to_empty(device="cpu" if settings.engine.offload else meshes.device)
    if not isinstance(stage, GPT):
        fill(stage, settings.seed, resnet_rule)
        return
    if settings.layout.pipeline == 1:
        tie(stage)
    fill(stage, settings.seed, gpt_rule(settings.sizes.layers), {COPY: ORIGINAL} if stage.tied else None)
    rank, ranks = meshes.context.get_local_rank(), meshes.context.size()
    stage.set_positions(positions_of(settings.data.seq_len, rank, ranks).to(meshes.device))


def _loss(output: Tensor, targets: Tensor) -> Tensor:
    """Mean over this rank's tokens (or images), never in less than fp32."""
    logits = output.flatten(0, -2) if targets.ndim > 1 else output
    if logits.dtype in (torch.bfloat16, torch.float16):
        logits = logits.float()
    return F.cross_entropy(logits, targets.flatten())


def _optimizer(stage: nn.Module, optim: OptimSettings, meshes: Meshes) -> torch.optim.Optimizer:
    every = [parameter for parameter in stage.parameters() if parameter.requires_grad]
    groups = [
        {"params": [each for each in every if each.ndim > 1], "weight_decay": optim.weight_decay},
        {"params": [each for each in every if each.ndim <= 1], "weight_decay": 0.0},
    ]
    if optim.name == "sgd":
        return torch.optim.SGD(groups, lr=optim.lr, momentum=optim.momentum)
    fused = meshes.device.type == "cuda"
    return torch.optim.AdamW(groups, lr=optim.lr, betas=optim.betas, eps=optim.eps, fused=fused)
