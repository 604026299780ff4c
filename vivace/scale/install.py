"""Puts the split in place, right after ``import torch`` in each rank. Called by the practice ``ddp``."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed

from vivace.measure.inside.patches import in_place_of
from vivace.scale import losses, row_views, sharded_rules  # noqa: F401  (the latter two: their rules)
from vivace.scale import region as regions
from vivace.scale.callers import this_is_the_rank
from vivace.scale.decisions import Decisions
from vivace.scale.drift import Drift
from vivace.scale.ending import tell_the_end
from vivace.scale.files import keep_files_apart
from vivace.scale.forward import Forwards
from vivace.scale.fsdp import Sharding
from vivace.scale.fsdp2 import Engine
from vivace.scale.gradients import Gradients
from vivace.scale.group import Group
from vivace.scale.keeps import Keeps
from vivace.scale.loader import OwnRows
from vivace.scale.moments import Moments
from vivace.scale.place import ScalePlace
from vivace.scale.plan import Planner
from vivace.scale.programs import Programs
from vivace.scale.row_edges import whole_at_the_edges
from vivace.scale.same_batches import SameBatches
from vivace.scale.sharded import Sharded
from vivace.scale.stopping import stop_together
from vivace.scale.telling import Telling, gradient_bytes
from vivace.scale.transforms import whole_in_transforms
from vivace.scale.turns import take_turns
from vivace.scale.zero1 import SharedStates

__all__ = ["install"]

Tell = Callable[[list[str], dict[str, str], dict[str, str], int, list[str]], None]
"""What is split; models that run whole, and datasets that every rank loads whole, each with the reason; the ranks;
what else there is to say."""


def install(place: ScalePlace, keeps: Keeps, tell: Tell) -> None:
    """``keeps``: what each rank keeps a share of.

    ``tell`` is called whenever a model or a dataset was met.
    """
    this_is_the_rank()
    _same_chance(place.seed)
    how, _, where = place.meet.partition(":")
    if how == "file":
        tell_the_end(Path(where), place.rank)
    group = Group(place)
    engine = Engine(group) if keeps is Keeps.SHARES_OF_ALL else None
    _refuse_distributed(place)
    region = regions.Region(group)
    decisions = Decisions(region)
    gradients = Gradients(group)
    group.average_too = lambda leaf: gradients.add([leaf])
    states = SharedStates(group, lambda: told()) if keeps is Keeps.SHARES_OF_STATES else None
    sharding = Sharding(group, gradients, engine) if engine is not None else None

    def meet(root: torch.nn.Module) -> None:
        _meet(root, gradients, group)
        if states is not None:
            states.go_last()
        if sharding is not None:
            sharding.steps.go_last()

    batches = SameBatches(group)
    forwards = Forwards(Planner(region, decisions), batches, meet, lambda: told(), sharding)
    loaders = OwnRows(group, batches, lambda: told())

    def told() -> None:
        notes = [note for each in (states, sharding) if each is not None for note in each.notes()]
        tell(_split(forwards, loaders), dict(forwards.whole), dict(loaders.whole), place.world, notes)

    def trained() -> list[torch.Tensor | None]:
        return [*gradients.parameters(), *(sharding.parameters() if sharding is not None else ())]

    drift = Drift(group, gradients.parameters)
    gradients.install()
    if states is not None:
        states.install()
    if sharding is not None:
        gradients.overlap.wanted = False  # FSDP2 exchanges most of them, and parameters must be free of hooks
        sharding.install()
    drift.install()
    Moments(group).install()
    regions.install(region)
    losses.install(region)
    decisions.install()
    whole_at_the_edges()
    whole_in_transforms()
    loaders.install()
    forwards.install()
    stop_together(group)
    Programs(group).install()
    if place.rank == 0:
        Telling(group, place.folder, lambda: _seen(forwards, loaders, trained(), gradients, drift)).install()
    if place.rank > 0:
        keep_files_apart(place.folder)
    take_turns(group)


def _seen(
    forwards: Forwards, loaders: OwnRows, trained: list[torch.Tensor | None], gradients: Gradients, drift: Drift
) -> dict[str, Any]:
    """What the report says beside the exchanges."""
    return {
        "split": _split(forwards, loaders),
        "whole": dict(forwards.whole),
        "loaded_whole": dict(loaders.whole),
        "gradient_bytes": gradient_bytes(trained),
        "sent_early": gradients.overlap.sent_early,
        "drift_checks": drift.checks,
    }


def _split(forwards: Forwards, loaders: OwnRows) -> list[str]:
    return sorted(forwards.splits) or (["batches"] if loaders.are_cut else [])


def _meet(root: torch.nn.Module, gradients: Gradients, group: Group) -> None:
    """A model before its first call: from here on it is one model on all ranks."""
    gradients.add(root.parameters())
    parameters = [each for each in root.parameters() if not isinstance(each, Sharded)]
    with torch.no_grad():
        group.from_first([*parameters, *root.buffers()])


def _same_chance(seed: int) -> None:
    """A script without a seed draws other numbers in every run, but the same on every rank."""
    torch.manual_seed(seed)
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed)


def _refuse_distributed(place: ScalePlace) -> None:
    original = torch.distributed.init_process_group

    def init_process_group(*args: Any, **kwargs: Any) -> None:
        if place.rank == 0:
            sys.stderr.write(
                "vivace: this script is distributed already (it calls init_process_group): "
                f"start it without --ranks, with torchrun --nproc-per-node {place.world}\n"
            )
        raise SystemExit(2)

    torch.distributed.init_process_group = in_place_of(original, init_process_group)
