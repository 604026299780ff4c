"""From a plan to the training that carries it out: the same model, layout, batch, precision and steps. Without torch.

Called by ``vivace train --plan`` and by ``vivace submit --plan`` without a command.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from vivace.errors import UserError
from vivace.records.layout import Layout
from vivace.records.plan import Plan
from vivace.train.settings import IMAGE_MODELS, TrainSettings, check, with_changes

__all__ = ["settings_of", "train_words"]

_PRECISIONS = {"fp32": "fp32", "tf32": "fp32", "bf16": "bf16"}
_OPTIMIZERS = {"adamw": "adamw", "sgd": "sgd"}


def settings_of(plan: Plan) -> TrainSettings:
    """What the plan planned; a ``UserError`` for what the trainer cannot do."""
    precision, optimizer = _PRECISIONS.get(plan.compute or ""), _OPTIMIZERS.get(plan.optimizer)
    if precision is None:
        raise UserError(
            f"the plan is for {plan.precision}, and the trainer computes in fp32 or bf16",
            hint="plan again with --precision bf16 (or fp32), or submit a command of your own: … -- python train.py",
        )
    if optimizer is None:
        raise UserError(
            f"the plan is for {plan.optimizer}, and the trainer has adamw and sgd", hint="plan again with --optimizer"
        )
    changes = [f"engine.precision={precision}", f"optim.name={optimizer}", f"global_batch={plan.global_batch}"]
    changes += [f"steps={plan.run.steps}"] if plan.run is not None else []
    settings = TrainSettings(model=_model(plan), layout=_layout(plan.layout))
    if plan.sizes is not None:
        settings = settings.model_copy(update={"sizes": plan.sizes})
        changes.append(f"data.seq_len={plan.seq_len}")
    else:
        changes += [f"data.image_size={plan.image_size}", "data.classes=1000"]
    settings = with_changes(settings, changes)
    check(settings, plan.gpus)
    return settings


def _model(plan: Plan) -> str:
    if plan.sizes is not None:
        return "gpt"
    if plan.model in IMAGE_MODELS:
        return plan.model
    if plan.seq_len is not None:
        raise UserError("the plan does not say the sizes of its model: an older vivace wrote it", hint="plan again")
    raise UserError(f"the trainer has no {plan.model}", hint=f"it has {', '.join(IMAGE_MODELS)}, and transformers")


def _layout(planned: Layout) -> Layout:
    """States of one rank are not sharded, and the V of a zero-bubble schedule has two stages per rank."""
    if planned.data * planned.context == 1:
        planned = replace(planned, zero=0, shard_size=0)
    return replace(planned, virtual_stages=2) if planned.schedule == "zbv" and planned.pipeline > 1 else planned


def train_words(settings: TrainSettings) -> tuple[str, ...]:
    """The command that trains so: everything is in its words, no file is needed where it runs.

    >>> train_words(TrainSettings(layout=Layout(data=2), steps=7))
    ('vivace', 'train', 'gpt', '--layout', 'dp2,mb1', '--set', 'steps=7')
    """
    layout = str(settings.layout) + (",mb1" if settings.layout.micro_batch == 1 else "")
    usual, own = TrainSettings().model_dump(mode="json"), settings.model_dump(mode="json")
    changes = [word for change in _differences(usual, own, "") for word in ("--set", change)]
    return ("vivace", "train", settings.model, "--layout", layout, *changes)


def _differences(usual: dict[str, Any], own: dict[str, Any], prefix: str) -> Iterator[str]:
    for name, value in own.items():
        if name in ("layout", "model") or value == usual[name]:
            continue
        if isinstance(value, dict):
            yield from _differences(usual[name], value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}={value if isinstance(value, str) else json.dumps(value)}"
