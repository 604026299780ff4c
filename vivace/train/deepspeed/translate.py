"""From a DeepSpeed configuration to a layout, settings of ``vivace train`` and practices of ``vivace run``.

Each key that depends on its value has a rule here; the others stand in ``keys.toml``. Called by ``vivace explain``.
"""

from __future__ import annotations

import difflib
import json
import shlex
from collections.abc import Callable, Mapping
from typing import Any

from vivace.errors import UserError
from vivace.records.explained import Answer, Explained, ExplainedKey
from vivace.records.layout import Layout
from vivace.train.deepspeed.reading import fixed_answer, known_keys, leaves
from vivace.train.deepspeed.rules import DEFAULT_CLIP, RULES, Asked, Found

__all__ = ["translate"]

_SHOWN = 40  # characters of a value


def translate(config: Mapping[str, Any], source: str, ranks: int | None) -> Explained:
    """``ranks``: processes in all; where it is not given, the batch sizes tell it, or it is 8."""
    asked = Asked(dict(leaves(config)))
    found = Found()
    keys = [_explained(key, value, asked, found) for key, value in asked.values.items()]
    world, notes = _world(asked, ranks)
    layout = _layout(asked, found, world)
    _fill_in(asked, found, layout)
    settings = {"global_batch": _global_batch(asked, layout), **found.settings}
    changes = tuple(f"{name}={_text(value)}" for name, value in settings.items())
    practices = (*((_split(asked.stage),) if world > 1 else ()), *sorted(found.practices))
    return Explained(
        source=source, ranks=world, keys=tuple(keys), layout=layout, settings=changes, practices=practices,
        train_command=_train_command(layout, changes), run_command=_run_command(world, practices),
        notes=(*notes, *found.notes),
    )  # fmt: skip


def _fill_in(asked: Asked, found: Found, layout: Layout) -> None:
    """What the file leaves out, and what one rank cannot do."""
    if "gradient_clipping" not in asked.values:
        found.set("optim.clip_norm", DEFAULT_CLIP)
        found.practices.add(f"clip={DEFAULT_CLIP:g}")
    if {"bf16.enabled", "fp16.enabled"} & asked.autos:
        found.notes.append("the file leaves the precision open: add --set engine.precision=bf16 if it was bf16")
    if not layout.zero and found.settings.pop("engine.offload", None):
        found.notes.append("one data rank has no shards, and only shards are offloaded")


def _text(value: Any) -> str:
    """As ``--set`` reads it."""
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def _explained(key: str, value: Any, asked: Asked, found: Found) -> ExplainedKey:
    text = json.dumps(value)
    shown = text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
    fixed = fixed_answer(key)
    if value == "auto" and fixed is None:
        why = "filled in by what starts DeepSpeed (the arguments of Hugging Face's Trainer)"
        return ExplainedKey(key=key, value=shown, answer=Answer.AUTO, ours=_SETTING_OF.get(key, ""), why=why)
    rule: Callable[[Asked, Found, Any], tuple[Answer, str, str]] | None = RULES.get(key)
    if rule is not None:
        try:
            answer, ours, why = rule(asked, found, value)
        except (TypeError, ValueError):
            raise UserError(f"{key}: {shown} is not a value that DeepSpeed takes") from None
        return ExplainedKey(key=key, value=shown, answer=answer, ours=ours, why=why)
    if fixed is not None:
        return ExplainedKey(key=key, value=shown, answer=fixed[0], why=fixed[1])
    near = difflib.get_close_matches(key, [*RULES, *known_keys()], 1, cutoff=0.75)
    why = f"no key of DeepSpeed that vivace knows{f'; {near[0]}?' if near else ''}"
    return ExplainedKey(key=key, value=shown, answer=Answer.UNKNOWN, why=why)


_SETTING_OF = {
    "train_batch_size": "global_batch", "train_micro_batch_size_per_gpu": "mb… in the layout",
    "gradient_clipping": "optim.clip_norm", "optimizer.params.lr": "optim.lr", "optimizer.params.betas": "optim.betas",
    "optimizer.params.eps": "optim.eps", "optimizer.params.weight_decay": "optim.weight_decay",
    "scheduler.params.warmup_num_steps": "optim.warmup_steps", "scheduler.params.warmup_max_lr": "optim.lr",
    "scheduler.params.total_num_steps": "steps", "bf16.enabled": "engine.precision", "fp16.enabled": "engine.precision",
    "gradient_accumulation_steps": "global_batch",
}  # fmt: skip


def _world(asked: Asked, ranks: int | None) -> tuple[int, list[str]]:
    batch, micro, accumulation = asked.batch, asked.micro, asked.accumulation
    implied = None
    if batch and micro and accumulation and batch % (micro * accumulation) == 0:
        implied = batch // (micro * accumulation) * asked.tensor * asked.sequence
    if ranks is None:
        if implied is not None:
            return implied, [f"{implied} processes: that is what the batch sizes say"]
        return 8 * asked.tensor * asked.sequence, ["the file does not say how many processes there are: --ranks N"]
    if ranks % (asked.tensor * asked.sequence):
        raise UserError(
            f"{ranks} processes cannot be dealt out to groups of {asked.tensor * asked.sequence}",
            hint=f"--ranks {asked.tensor * asked.sequence}, or a multiple of it",
        )
    if implied is not None and implied != ranks:
        return ranks, [f"the batch sizes are those of {implied} processes: train_batch_size counts"]
    return ranks, []


def _layout(asked: Asked, found: Found, world: int) -> Layout:
    data = world // (asked.tensor * asked.sequence)
    zero = asked.stage if data > 1 else 0
    shard = found.shard_size
    if shard and (data % shard or zero != 3):
        found.notes.append(f"shards of {shard} do not fit {data} data ranks: states are sharded over all")
        shard = 0
    batch = asked.batch or (asked.micro or 1) * (asked.accumulation or 1) * data
    micro = asked.micro or max(1, batch // (data * (asked.accumulation or 1)))
    return Layout(
        data=data, tensor=asked.tensor, context=asked.sequence, sequence_parallel=asked.tensor > 1, zero=zero,
        shard_size=shard if shard and shard < data else 0, micro_batch=micro, recompute=found.recompute,
    )  # fmt: skip


def _global_batch(asked: Asked, layout: Layout) -> int:
    """A multiple of what all ranks take at once."""
    per_round = layout.data * layout.micro_batch
    wanted = asked.batch or per_round * (asked.accumulation or 1)
    return max(per_round, round(wanted / per_round) * per_round)


def _split(stage: int) -> str:
    """The practice: its fsdp frees parameters after use, as stage 3; stage 2 is nearest to it, too."""
    return ("ddp", "zero1", "fsdp", "fsdp")[stage]


def _train_command(layout: Layout, changes: tuple[str, ...]) -> str:
    return shlex.join(["vivace", "train", "gpt", "--layout", str(layout), *(w for c in changes for w in ("--set", c))])


def _run_command(world: int, practices: tuple[str, ...]) -> str:
    words = ["vivace", "run"]
    if world > 1:
        words += ["--ranks", str(world)]
    if practices:
        words += ["--with", ",".join(practices)]
    return shlex.join([*words, "--", "python", "train.py"])
