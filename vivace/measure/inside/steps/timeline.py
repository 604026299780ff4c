"""From the raw marks of a run to steps, phases and validation. Pure: no torch, no clock, no state.

The recorder writes a mark wherever one phase of training ends and another begins. Time between two marks belongs
to exactly one phase, so the phases of a step add up to the step. The same marks are read twice: once with the GPU's
clock (CUDA events on the stream, so a wait shows up only where the GPU really waited) and once with the host's.

A *piece* is a stretch between delimiters (a batch fetched, eval()/train() called, an optimizer step). A piece in
which nothing was trained and only gradient-free forwards ran, or which ran in eval mode, is validation; also when its
forwards kept a graph that no backward used. Gradient-free forwards in train mode that most steps have are part of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

__all__ = ["ALL_RANKS", "NO_LOSS", "PHASES", "VALIDATION", "Mark", "Span", "Step", "Timeline", "split"]

NO_LOSS = "no loss"  # the extra of a ``bwd+`` that is no micro-batch: torch.autograd.grad (penalties, checks)

PHASES = ("loader", "copy", "forward", "backward", "communication", "optimizer", "other")

ALL_RANKS = "all ranks"  # the dimension of an exchange of which no other is known

VALIDATION = "validation"  # of a span: no part of a step

_PHASE_OF = {
    "data": "loader",
    "wait": "loader",
    "copy": "copy",
    "fwd": "forward",
    "bwd": "backward",
    "comm": "communication",
    "opt": "optimizer",
}


class Mark(NamedTuple):
    """``code`` is a phase's short name with ``+`` (enter) or ``-`` (leave), ``bwd=`` (gradients computed, waiting for
    communication), ``closure`` (an optimizer calls its closure), ``eval`` or ``train`` (mode switch), or ``open`` (the
    first mark). ``extra`` depends on the code."""

    code: str
    t_ms: float
    extra: Any = None


class Span(NamedTuple):
    """A stretch of time, in the marks' milliseconds, and the phase that it counts for."""

    start_ms: float
    stop_ms: float
    phase: str


@dataclass
class Step:
    """One optimizer cycle: its time by phase, what went in, and the extras of its backward passes."""

    phases_ms: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    exchanges_ms: dict[str, float] = field(default_factory=dict)
    """The time of ``communication`` by dimension of the layout."""
    fetched: list[int] = field(default_factory=list)
    forwards: list[Any] = field(default_factory=list)
    backwards: list[Any] = field(default_factory=list)
    losses: list[Any] = field(default_factory=list)
    """Those of ``backwards`` that make up the loss at the step's start: of a closure, those of its first call."""
    skipped: bool = False

    @property
    def shapes(self) -> tuple[Any, ...]:
        """Of what went into the forwards that need gradients."""
        return tuple(forward["shape"] for forward in self.forwards if forward["grad"])

    @property
    def total_ms(self) -> float:
        return sum(self.phases_ms.values())


@dataclass
class Timeline:
    steps: list[Step] = field(default_factory=list)
    validation_ms: float = 0.0
    validation_batches: int = 0
    validation_runs: int = 0
    validation_with_grad_ms: float = 0.0
    unfinished: Step = field(default_factory=Step)
    spans: list[Span] = field(default_factory=list)
    """All of the time in order, each part once."""


_USUAL = 0.5  # of the steps
_PENDING = "pending"  # of a span: the tail of a forward, until it is known what follows


@dataclass
class _Piece:
    eval_mode: bool
    step: Step = field(default_factory=Step)
    trained: bool = False
    forwards_without_grad: int = 0
    forwards_with_grad_in_eval: int = 0
    pending_ms: float = 0.0
    spans: list[Span] = field(default_factory=list)

    def is_validation(self) -> bool:
        return not self.trained and (self.eval_mode or self.forwards_without_grad > 0)


class _Splitter:
    def __init__(self) -> None:
        self.result = Timeline()
        self.stack: list[str] = []
        self.dimensions: list[str] = []  # of the exchanges in the stack
        self.piece = _Piece(eval_mode=False)
        self.in_tail = False  # after a forward that needs a gradient: what follows is the loss, if a backward comes
        self.closure_calls = 0  # of the optimizer that is stepping
        self.was_validation = False
        self.held: list[_Piece] = []  # forwards without gradients, in train mode, since the last step
        self.held_by_step: list[list[_Piece]] = []

    def elapse(self, start_ms: float, stop_ms: float) -> None:
        phase, ms = self.stack[-1] if self.stack else "other", stop_ms - start_ms
        if self.in_tail and phase in ("other", "optimizer"):
            self.piece.pending_ms += ms
            phase = _PENDING
        else:
            self.piece.step.phases_ms[phase] += ms
            if phase == "communication":
                over = self.dimensions[-1] if self.dimensions else ALL_RANKS
                self.piece.step.exchanges_ms[over] = self.piece.step.exchanges_ms.get(over, 0.0) + ms
        self.piece.spans.append(Span(start_ms, stop_ms, phase))

    def settle_tail(self, phase: str) -> None:
        if self.in_tail:
            self.piece.spans = [one._replace(phase=phase) if one.phase is _PENDING else one for one in self.piece.spans]
        self.piece.step.phases_ms[phase] += self.piece.pending_ms
        self.piece.pending_ms = 0.0
        self.in_tail = False

    def close_piece(self, eval_mode: bool | None = None) -> None:
        piece = self.piece
        self.settle_tail("optimizer" if "optimizer" in self.stack else "other")
        if piece.is_validation():
            if piece.eval_mode:
                self.validate(piece, begins=not self.was_validation)
            else:
                self.held.append(piece)
            self.was_validation = True
        else:
            _add(self.result.unfinished, piece.step)
            self.result.spans += piece.spans
            self.was_validation = self.was_validation and not piece.trained
        self.piece = _Piece(eval_mode=piece.eval_mode if eval_mode is None else eval_mode)

    def validate(self, piece: _Piece, begins: bool) -> None:
        self.result.validation_ms += piece.step.total_ms
        self.result.validation_batches += piece.forwards_without_grad + piece.forwards_with_grad_in_eval > 0
        self.result.validation_with_grad_ms += piece.step.total_ms if piece.forwards_with_grad_in_eval else 0.0
        self.result.validation_runs += begins
        self.result.spans += [span._replace(phase=VALIDATION) for span in piece.spans]

    def close_step(self) -> None:
        self.piece.trained = True
        self.close_piece()
        self.result.steps.append(self.result.unfinished)
        self.result.unfinished = Step()
        self.held_by_step.append(self.held)
        self.held = []

    def settle_held(self) -> None:
        """What most steps do is part of a step (labels made by a teacher); what few do is a validation."""
        usual = sum(map(bool, self.held_by_step)) > _USUAL * len(self.held_by_step)
        for step, pieces in zip(self.result.steps, self.held_by_step):
            for number, piece in enumerate(pieces):
                if usual:
                    _add(step, piece.step)
                    self.result.spans += piece.spans
                else:
                    self.validate(piece, begins=number == 0)
        for number, piece in enumerate(self.held):
            self.validate(piece, begins=number == 0)

    def take(self, mark: Mark) -> None:
        code, extra = mark.code, mark.extra
        if code in ("eval", "train"):
            if not self.stack:
                self.close_piece(eval_mode=code == "eval")
        elif code == "closure":
            self.closure_calls += 1
        elif code == "bwd=":
            if self.stack and self.stack[-1] == "backward":
                self.stack[-1] = "communication"
                self.dimensions.append(extra or ALL_RANKS)
        elif code.endswith("+"):
            self.enter(code[:-1], extra)
        elif code.endswith("-"):
            self.leave(code[:-1], extra)

    def enter(self, name: str, extra: Any) -> None:
        if name == "opt" and "optimizer" in self.stack:
            self.stack.clear()  # its last step raised and never left
            self.dimensions.clear()
            self.closure_calls = 0
        if name == "data" and not self.stack:
            self.close_piece()
        elif name == "bwd":
            self.settle_tail("forward")
            self.piece.trained = True
            if extra is not NO_LOSS:
                self.piece.step.backwards.append(extra)
                if self.closure_calls <= 1:
                    self.piece.step.losses.append(extra)
        elif name == "opt" and not self.stack:
            self.settle_tail("other")
            self.piece.trained = True
        self.stack.append(_PHASE_OF[name])
        if name == "comm":
            self.dimensions.append(extra or ALL_RANKS)

    def leave(self, name: str, extra: Any) -> None:
        if self.stack and self.stack.pop() == "communication" and self.dimensions:
            self.dimensions.pop()
        if name == "opt":
            self.closure_calls = 0
        step = self.piece.step
        if name == "data" and extra:
            step.fetched.append(extra)
        elif name == "fwd" and extra is not None:
            self.left_forward(extra)
        elif name == "opt" and extra is not None:
            step.skipped = step.skipped or extra.get("skipped", False)
            if extra.get("ends_step"):
                self.close_step()

    def left_forward(self, extra: dict[str, Any]) -> None:
        self.piece.step.forwards.append(extra)
        if extra["grad"]:
            self.piece.trained = self.piece.trained or not self.piece.eval_mode  # in eval mode a backward tells
            self.piece.forwards_with_grad_in_eval += self.piece.eval_mode
            self.in_tail = True
        else:
            self.piece.forwards_without_grad += 1


def _add(into: Step, part: Step) -> None:
    for phase, ms in part.phases_ms.items():
        into.phases_ms[phase] += ms
    for over, ms in part.exchanges_ms.items():
        into.exchanges_ms[over] = into.exchanges_ms.get(over, 0.0) + ms
    into.fetched += part.fetched
    into.forwards += part.forwards
    into.backwards += part.backwards
    into.losses += part.losses
    into.skipped = into.skipped or part.skipped


def split(marks: Sequence[Mark] | Iterable[Mark]) -> Timeline:
    """Cut the marks into steps. Nothing is lost: steps + validation + unfinished = last mark - first mark."""
    splitter = _Splitter()
    previous: float | None = None
    for mark in marks:
        if previous is not None:
            splitter.elapse(previous, mark.t_ms)
        previous = mark.t_ms
        splitter.take(mark)
    splitter.close_piece()
    splitter.settle_held()
    splitter.result.spans.sort()
    return splitter.result
