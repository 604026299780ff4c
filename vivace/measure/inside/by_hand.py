"""Steps of a script that updates its parameters by hand, or in hooks of its backward passes: no optimizer tells them.

At first each backward pass is followed up: which of its parameters have changed when the next one starts? Once the
order repeats (``rhythm.py``), steps are counted by backward passes alone. Values are read, which waits for the GPU,
only until then; that is warm-up. Where an optimizer exists nothing of this happens: its steps tell.

A step lasts until the first sign of the next one (``recorder.NEW_WORK``): a batch, a forward, a backward.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Sequence
from typing import Any

import torch

from vivace.measure.inside.steps.rhythm import FEWEST_GAPS, Gap, Rhythm, find_rhythm
from vivace.measure.inside.steps.watched import Watched, trained_by
from vivace.measure.inside.training import Training

__all__ = ["ByHand", "StandIn"]

_PATIENCE = 256  # backward passes that an optimizer which was made may take until its first step (accumulation)
_GIVE_UP = 512  # backward passes that are followed up in vain


class StandIn:
    """For what asks an optimizer for its parameters, where there is none."""

    def __init__(self) -> None:
        self._parameters: list[Any] = []  # weak references

    def note(self, parameters: Sequence[torch.Tensor]) -> None:
        """Those of a backward pass: added to what was trained before."""
        known = {id(parameter) for parameter in self.parameters()}
        self._parameters += [weakref.ref(parameter) for parameter in parameters if id(parameter) not in known]

    def parameters(self) -> list[torch.Tensor]:
        return [parameter for reference in self._parameters if (parameter := reference()) is not None]

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return [{"params": self.parameters()}]


class ByHand:
    """One per process. ``session`` gets ``begin_steps_by_hand``, ``before_hand_update`` and ``on_hand_step``."""

    def __init__(self, training: Training, session: Any) -> None:
        self.training, self.session = training, session
        self.recorder = training.recorder
        self.reset()
        os.register_at_fork(after_in_child=self.reset)

    def reset(self) -> None:
        self.off = False  # an optimizer steps, or nothing can be told
        self.steps_in_backward = False  # an optimizer steps in hooks of the backward pass
        self.functional = False  # gradients come from torch.autograd.grad
        self.backwards = 0
        self.rhythm: Rhythm | None = None
        self._forget()

    def _forget(self) -> None:
        self.gaps: list[Gap] = []
        self._watched = Watched()
        self._stand_in = StandIn()
        self._ends: list[int | None] = []  # for each gap the mark at which its step would end
        self._seen_marks = 0
        self._following = False
        self._gap = -1  # number of the gap that the last backward pass began

    def optimizer_stepped(self) -> bool:
        """An optimizer tells the steps from here on. True if some were counted by hand before."""
        counted, self.off = self.rhythm is not None and not self.off, True
        self.recorder.pending = None
        self._watched = Watched()
        return counted

    def stepped_in_backward(self) -> None:
        """An optimizer steps in a hook, so its existence is no reason to wait for it."""
        if self.steps_in_backward or self.off:
            return
        self.steps_in_backward = True
        if not self._following:  # this backward pass is the first to be followed up
            self._following = True
            self._ends.append(None)
            self._gap += 1

    # -- around every backward pass ----------------------------------------------------------------------------------

    def before_backward(self, outputs: Any) -> None:
        """Before one that fills ``.grad``."""
        if self.off or (self.functional and self.rhythm is not None):
            return
        if self.functional:
            self.functional = False
            self._forget()
        self._before(outputs, None)

    def before_grad(self, outputs: Any, inputs: Any) -> bool:
        """Before ``torch.autograd.grad``. False where it is no training step's: the script calls ``backward`` too."""
        if self.off or (self.backwards and not self.functional):
            return False
        self.functional = True
        self._before(outputs, inputs.values() if isinstance(inputs, dict) else inputs)
        return True

    def _before(self, outputs: Any, inputs: Any) -> None:
        self.recorder.new_work()
        self.backwards += 1
        if self.rhythm is None:
            if not self._may_follow():
                self._forget()
                return
            with contextlib.suppress(Exception):  # tensors can be anything; without their values nothing is told
                self._follow_up(self._in_order(trained_by(outputs, inputs) or self._parameters_of_roots()))
        self._gap += self._following

    def after_backward(self) -> None:
        if self.off or not self._following:
            return
        if self.rhythm is None:
            if self._stand_in.parameters():
                self.session.before_hand_update(self._stand_in)
            self.recorder.pending = self._note_where_a_step_may_end
        elif self.rhythm.updates(self._gap):
            ends = self.rhythm.ends_step(self._gap)
            if ends:
                self.session.before_hand_update(self._stand_in)
            if self._update_is_seen():
                self.recorder.mark("opt+")
            self.recorder.pending = self.session.on_hand_step if ends else self._update_ends

    def _update_is_seen(self) -> bool:
        """What follows the backward pass is the update. Not in scripts without a module, whose next forward nobody
        sees begin, nor where hooks have made the update already."""
        return bool(self.training.roots) and not self.steps_in_backward

    def _update_ends(self) -> None:
        if self._update_is_seen():
            self.recorder.mark("opt-", {"ends_step": False, "skipped": False, "by": None})

    # -- finding out -------------------------------------------------------------------------------------------------

    def _may_follow(self) -> bool:
        return not self._optimizer_made() or self.steps_in_backward or self.backwards > _PATIENCE

    def _optimizer_made(self) -> bool:
        return self.training.creations is not None and self.training.creations.optimizers_made > 0

    def _note_where_a_step_may_end(self) -> None:
        self._ends[-1] = len(self.recorder.marks)
        self.recorder.mark("gap")

    def _follow_up(self, parameters: list[torch.Tensor]) -> None:
        """At the start of a backward pass: what changed since the start of the last one?"""
        changed = self._watched.look(parameters)
        self._stand_in.note(parameters)
        marks = self.recorder.marks
        if self._following:
            fetched = any(code == "data+" for code, *_ in marks[self._seen_marks :])
            self.gaps.append(Gap(frozenset(changed), fetched))
            self.rhythm = find_rhythm(self.gaps)
        self._seen_marks = len(marks)
        self._ends.append(None)
        self._following = True
        if self.rhythm is not None:
            self._watched = Watched()
            self.session.begin_steps_by_hand(self._mark_past_steps(self.rhythm))
        elif len(self.gaps) > _GIVE_UP:
            self.off = True

    def _mark_past_steps(self, rhythm: Rhythm) -> int:
        """The steps until now, of which only now is known where they ended. Returns how many."""
        ends = [end for gap, end in enumerate(self._ends) if end is not None and rhythm.ends_step(gap)]
        for end in ends:
            _code, ns, event, _extra = self.recorder.marks[end]
            self.recorder.marks[end] = ("opt-", ns, event, {"ends_step": True, "skipped": False, "by": None})
        return len(ends)

    def _in_order(self, parameters: list[torch.Tensor]) -> list[torch.Tensor]:
        """As the model has them, in every run: the order in which a graph is gone through depends on its kernels."""
        places = {id(parameter): place for place, parameter in enumerate(self._parameters_of_roots())}
        return sorted(parameters, key=lambda parameter: places.get(id(parameter), len(places)))

    def _parameters_of_roots(self) -> list[torch.Tensor]:
        """What reentrant checkpointing hides from the graph."""
        roots = sorted(self.training.known_roots(), key=lambda root: type(root).__name__)
        return [p for root in roots for p in root.parameters() if p.requires_grad]

    # -- telling -----------------------------------------------------------------------------------------------------

    def notes(self) -> list[str]:
        """What to know about figures of steps that were counted this way."""
        if self.off or self.rhythm is None:
            return []
        if self.steps_in_backward:
            return [
                "optimizers step in hooks of the backward pass: steps are counted by backward passes, and the updates "
                "are part of them"
            ]
        told = "parameters are updated by hand: steps are counted by backward passes; "
        if not self.training.roots:
            return [f"{told}no module is called, so forward passes and updates are part of other"]
        return [f"{told}what follows the last one of a step (clipping, the update, logging) counts as optimizer"]

    def why_no_steps(self) -> str | None:
        """For a process that trained, but in which no step was seen."""
        if self.rhythm is not None or self.backwards == 0:
            return None
        if not self._following:
            return "an optimizer was made, but it never stepped" if self._optimizer_made() else None
        updates = sum(bool(gap.changed) for gap in self.gaps)
        if updates == 0:
            return f"no parameter changed after any of {self.backwards} backward passes"
        if len(self.gaps) < FEWEST_GAPS:
            return (
                f"parameters are updated by hand in only {self.backwards} backward passes: at least {FEWEST_GAPS + 1} "
                "are needed to tell what a step is"
            )
        return "parameters are updated by hand, in no order of backward passes that repeats"
