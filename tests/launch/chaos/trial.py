"""One training with its faults: sent, disturbed, sent again where it ended, and compared with an undisturbed one."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from launch.chaos.laws import Law, Outcome, Seen, broken_by_end, broken_by_fault, starts_before, steps_lost
from launch.chaos.processes import Role, processes
from launch.chaos.site import Site
from launch.chaos.strike import Expect, Fault, Missed, Strike
from launch.chaos.training import STEPS, Shape, Training
from launch.chaos.truth import untrue, untrue_in_silence
from launch.chaos.waiting import GaveUp, wait
from launch.slurm_cluster import FINAL

__all__ = ["Hit", "Plan", "Planned", "Reference", "plan_of", "run_trial"]

_SLOW_STEP_S, _STEP_S = 2.0, 0.1
_SLOW_FAULTS_UNTIL = 20  # steps: Slurm takes up to two minutes over a time limit
_MORE_STEPS = 4  # until a training counts as gone on
_ASK_EVERY_S = 2.0


@dataclass(frozen=True)
class Planned:
    fault: Fault
    at_step: int


@dataclass(frozen=True)
class Plan:
    name: str
    shape: Shape
    faults: tuple[Planned, ...]
    options: tuple[str, ...]
    step_s: float
    seed: int


@dataclass
class Reference:
    """The same training, left alone."""

    losses: dict[tuple[int, int], set[str]]
    model: dict[str, Any]


@dataclass
class Hit:
    """A row of the table."""

    plan: Plan
    fault: str
    job: str = ""
    step: int = -1
    saved_step: int = 0
    outcome: str = ""
    state: str = ""
    steps_lost: int = 0
    alone: bool = True
    seconds: float = 0.0
    broken: list[str] = field(default_factory=list)
    gave_up: str = ""

    @property
    def verdict(self) -> str:
        return "; ".join(self.broken) or self.gave_up or "holds"


def plan_of(name: str, shape: Shape, faults: Sequence[Fault], seed: int, options: Sequence[str] = ()) -> Plan:
    """The faults come at random steps, the first perhaps before the first step (-1)."""
    dice = random.Random(seed)
    slow = any(fault.slow for fault in faults)
    steps = sorted(dice.randrange(-1, _SLOW_FAULTS_UNTIL if slow else STEPS) for _ in faults)
    asked = dict.fromkeys([*options, *(option for fault in faults for option in fault.options)])
    step_s = _SLOW_STEP_S if slow else _STEP_S
    planned = tuple(Planned(fault, step) for fault, step in zip(faults, steps, strict=True))
    return Plan(name, shape, planned, tuple(asked), step_s, seed)


def run_trial(site: Site, disk: int, plan: Plan, reference: Reference | None) -> Iterator[Hit]:
    """Each fault when it has been judged; the last one also by the end of the training."""
    training = Training(site.bench(disk), plan.name, plan.shape, plan.options, plan.step_s)
    trial = _Trial(site, training, plan, random.Random(plan.seed))
    last: Hit | None = None
    now = "none yet"
    try:
        training.send()
        for planned in plan.faults:
            now = planned.fault.name
            hit = trial.strike(planned)
            if hit is None:
                break
            if last is not None:
                yield last
            last = hit
        now = "none any more"
        trial.await_end(last)
        if last is not None:
            last.broken += trial.judge_end(reference)
    except GaveUp as error:
        if last is not None:
            yield last
        last = Hit(plan, now, job=training.job if training.records else "", gave_up=str(error))
        if training.records:
            for how in (("--signal=KILL", "--full"), ()):
                site.cluster.run("scancel", *how, training.job, check=False)
    if last is not None:
        yield last


class _Trial:
    def __init__(self, site: Site, training: Training, plan: Plan, dice: random.Random) -> None:
        self.site, self.training, self.plan, self.dice = site, training, plan, dice
        self._asked_s, self._answer = -_ASK_EVERY_S, ""

    def over(self) -> str:
        """Its final state, and "" before. A job that Slurm holds after a failed launch is let go, as its user would."""
        if time.monotonic() - self._asked_s < _ASK_EVERY_S:
            return self._answer
        self._asked_s, self._answer = time.monotonic(), self._over()
        return self._answer

    def _over(self) -> str:
        facts = self.site.facts(self.training.job)
        if "held" in facts.get("Reason", "").lower():
            self.site.scontrol("release", self.training.job)
        state = facts.get("JobState", "")
        if state not in FINAL or processes(self.site.cluster, self.training.job)[Role.SCRIPT]:
            return ""
        return state

    def send(self) -> None:
        self.training.send()
        self._answer = ""

    def last_step(self) -> int:
        lives = self.training.lives()
        return lives[-1].last if lives else -1

    def strike(self, planned: Planned) -> Hit | None:
        """None: the training was over before."""
        found: list[Hit | None] = []

        def struck() -> bool:
            if self.over():
                found.append(None)
            elif self.last_step() >= planned.at_step:
                try:
                    found.append(self._strike(planned))
                except Missed:
                    return False  # between two starts
            return bool(found)

        wait(f"step {planned.at_step}, or something to hit with {planned.fault.name}", struck)
        return found[0]

    def _strike(self, planned: Planned) -> Hit:
        training, began_s = self.training, time.monotonic()
        lives, done = starts_before(planned.fault.expect, training.lives()), training.ranks_done()
        hit = Hit(self.plan, planned.fault.name, training.job, self.last_step(), training.saved_step())
        with planned.fault.happens(Strike(self.site, training, self.dice)):
            untrue_words = self._untrue_in_silence() if planned.fault.silences else self._untrue()
        outcome = self._outcome(planned, lives)
        hit.state = self.site.state(training.job)
        all_done = training.ranks_done() >= self.plan.shape.speakers
        if outcome is Outcome.ENDED:
            untrue_words = untrue_words or self._untrue()
            hit.state = self.site.state(training.job)
            self.send()
            wait("the training to begin again", lambda: len(training.lives()) > lives)
        after = training.lives()
        hit.outcome, hit.seconds = outcome.value, time.monotonic() - began_s
        hit.steps_lost = max([0, *steps_lost(after)[max(0, lives - 1) :]])
        hit.alone = not self.site.others_since(self.plan.name, began_s)
        seen = Seen(
            expect=planned.fault.expect,
            outcome=outcome,
            state=hit.state,
            alone=hit.alone,
            saved_step=hit.saved_step,
            lives_before=lives,
            lives=after,
            finished_before=done > 0,
            all_ranks_done=all_done and len(after) == lives,
        )
        hit.broken = [law.value for law in broken_by_fault(seen)]
        if untrue_words:
            hit.broken.append(f"{Law.STATUS.value}: {untrue_words}")
        return hit

    def _untrue(self) -> str | None:
        try:
            return untrue(self.site, self.training, self.dice)
        except subprocess.TimeoutExpired:
            return None

    def _untrue_in_silence(self) -> str | None:
        try:
            return untrue_in_silence(self.training) if self.dice.random() < 0.3 else None
        except subprocess.TimeoutExpired:
            return None

    def _outcome(self, planned: Planned, lives: int) -> Outcome:
        at = self.last_step()
        found: list[Outcome] = []

        def seen() -> bool:
            if len(self.training.lives()) > lives:
                found.append(Outcome.RESTARTED)
            elif state := self.over():
                found.append(Outcome.FINISHED if state == "COMPLETED" else Outcome.ENDED)
            elif planned.fault.expect is Expect.UNTOUCHED and self.last_step() >= at + _MORE_STEPS:
                found.append(Outcome.WENT_ON)
            return bool(found)

        wait(f"an outcome of: {planned.fault.name}", seen)
        return found[-1]

    def await_end(self, last: Hit | None) -> None:
        """Sent again as often as needed; what is COMPLETED must be done."""
        for _ in range(3):
            wait("the end", self.over)
            if self.over() == "COMPLETED":
                return
            if last is not None and self.training.ranks_done() >= self.plan.shape.speakers:
                last.broken.append(f"{Law.FALSE_FAILED.value}: {self.over()}")
            self.send()
        raise GaveUp("gave up waiting for: the end, sent again three times")

    def judge_end(self, reference: Reference | None) -> list[str]:
        """Without a reference: whether it is done, and whether steps that were trained twice gave the same."""
        import torch

        state = self.training.saved()
        step, model = (0, {}) if state is None else (int(state["step"]), state["model"])
        losses = self.training.losses()
        if reference is None:
            same, alike = True, all(len(values) == 1 for values in losses.values())
        else:
            alike = all(values == reference.losses.get(key) for key, values in losses.items())
            same = model.keys() == reference.model.keys() and all(
                torch.equal(model[name], value) for name, value in reference.model.items()
            )
        words = [law.value for law in broken_by_end("COMPLETED", step, same, alike)]
        if problem := self._untrue():
            words.append(f"{Law.STATUS.value}: {problem}")
        return words
