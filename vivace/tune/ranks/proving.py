"""The first steps of a command, split over ranks and as one process: are they the same training?

Both run for some steps with the same seed, and what they write goes nowhere. A difference is looked at twice: one
process is run again, to see whether it repeats itself. Called by ``vivace run --ranks``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from vivace import __version__
from vivace.errors import ExitCode, UserError
from vivace.measure.command import nowhere
from vivace.measure.measuring import Measured, Request, measure
from vivace.measure.own_error import last_lines
from vivace.practices.engine.registry import environment_of, parse_words
from vivace.protocol.ending import Ending
from vivace.protocol.progress import SeenProgress
from vivace.protocol.request import Entry
from vivace.records.equality import Equality, EqualityVerdict
from vivace.records.measurement import Measurement
from vivace.records.privacy import safe_command, safe_text
from vivace.scale.launcher import over_ranks
from vivace.tune.ranks.comparing import Compared, compare

__all__ = ["INSIDE_THE_RUN", "equality_of", "prove_equal", "why_nothing"]

_WARM_UP_STEPS = 6  # gradients of the first four are looked at
_NOT_LOGGED = {"WANDB_MODE": "disabled"}  # a run of some steps is nothing that a tracker should show

INSIDE_THE_RUN = (
    "outputs of every kind of call, validation included, whole against parts, at calls 1, 2, 4, 8, …",
    "parameters of all ranks after steps 1, 2, 10, and every 50",
    "what the first save holds, and the model after the first load, over the ranks",
)
"""What the ranks compare among themselves during the whole training."""
_NOT_COMPARED = ("the training after these steps with that of one process", "files byte by byte")

Step = Callable[[str], None]


@dataclass(frozen=True)
class _Side:
    """One of the runs, and why it has no figures."""

    record: Measurement | None
    measured: Measured

    @property
    def why_nothing(self) -> str:
        return why_nothing(self.measured)

    @property
    def out_of_memory(self) -> bool:
        out = self.measured.ending is Ending.OUT_OF_MEMORY or self.measured.outcome.exit_code == 137
        return out or "out of memory" in self.why_nothing.lower()


def why_nothing(measured: Measured) -> str:
    """What a run without figures said last."""
    said = last_lines(measured.folder / "stderr.log", 1) or measured.message or ""
    return safe_text(said.strip().removeprefix("vivace: ")) or f"exit code {measured.outcome.exit_code}"


def prove_equal(
    command: Sequence[str], mode: str, words: Sequence[str], ranks: int, folder: Path, say: Step,
    progress: Callable[[SeenProgress], None] = lambda _: None,
) -> Equality:  # fmt: skip
    """``words``: the other practices, on both sides. ``folder`` gets the runs. Raises ``UserError`` where the split
    training is another one, or does not run; ``KeyboardInterrupt`` after Ctrl-C."""
    began = time.monotonic()

    def run(name: str, split: bool) -> _Side:
        say(f"{ranks} ranks" if split else "one process")
        chosen = parse_words((mode, *words)) if split else tuple(words)
        place = folder / name
        place.mkdir(parents=True, exist_ok=True)
        request = Request(
            command=tuple(command), steps=1, warmup_steps=_WARM_UP_STEPS, profile=False, flops=False, folder=place,
            practices=chosen, entry=Entry.PRACTICES, environment={**_NOT_LOGGED, **environment_of(chosen)},
            launcher=over_ranks(ranks) if split else (), seed_offset=0, grad_norms=True, files_apart=True,
            repeated=True,
        )  # fmt: skip
        measured = measure(request, nowhere, progress)
        if measured.outcome.interrupted:
            raise KeyboardInterrupt
        return _Side(measured.measurement, measured)

    def answer(verdict: EqualityVerdict, says: str, compared: Compared | None = None) -> Equality:
        return equality_of(command, mode, words, ranks, verdict, says, compared, time.monotonic() - began)

    split = run("ranks", split=True)
    if split.record is None:
        raise UserError(
            f"the training does not run on {ranks} ranks: {split.why_nothing}",
            hint=f"its output is in {split.measured.folder}; --no-prove starts the training itself",
        )
    alone = run("one", split=False)
    if alone.record is None:
        if alone.out_of_memory:
            return answer(EqualityVerdict.NOT_COMPARED, "one process alone runs out of memory")
        raise UserError(
            f"the command does not train as one process: {alone.why_nothing}",
            hint=f"its output is in {alone.measured.folder}; --no-prove starts the training on ranks",
        )
    every = (mode, *words)
    compared = compare(alone.record, split.record, every)
    if compared.failed is not None:  # does one process repeat itself?
        again = run("one-again", split=False)
        if again.record is not None:
            compared = compare(alone.record, split.record, every, (alone.record, again.record))
    if compared.failed is not None:
        raise UserError(
            f"on {ranks} ranks with {mode} this is another training than in one process: {compared.failed}",
            hint=f"both runs are in {folder}; --no-prove trains nevertheless",
            exit_code=ExitCode.NEGATIVE,
        )
    if compared.not_compared is not None:
        return answer(EqualityVerdict.NOT_COMPARED, compared.not_compared, compared)
    return answer(EqualityVerdict.EQUAL, compared.says(), compared)


def equality_of(
    command: Sequence[str], mode: str, words: Sequence[str], ranks: int, verdict: EqualityVerdict, says: str,
    compared: Compared | None, seconds: float,
) -> Equality:  # fmt: skip
    """The record of a comparison."""
    is_equal = compared is not None and verdict is EqualityVerdict.EQUAL
    steps = compared.pair[0].first_steps if compared is not None else None
    return Equality(
        command=safe_command(command),
        mode=mode,
        ranks=ranks,
        practices=tuple(words),
        reference=_reference(words),
        verdict=verdict,
        says=says,
        gradient=compared.gradient if compared is not None else None,
        same_bits=compared.same_bits if compared is not None else False,
        allowed=compared.claims.tolerance.gradient if compared is not None else None,
        losses=compared.losses if compared is not None else (),
        parameters=steps.steps[0].parameters if steps is not None and steps.steps else None,
        compared=_compared(compared) if compared is not None and is_equal else (),
        not_compared=_NOT_COMPARED,
        seconds=seconds,
        proved_at=datetime.now(UTC).isoformat(timespec="seconds"),
        vivace=__version__,
    )


def _compared(compared: Compared) -> tuple[str, ...]:
    steps = compared.first.steps
    first = f"with one process: batches, gradients and updates of {steps} optimizer steps"
    losses = (f"with one process: losses of {len(compared.losses)} steps",) if compared.losses else ()
    return (first, *losses, *(f"among the ranks, during the training: {what}" for what in INSIDE_THE_RUN))


def _reference(words: Sequence[str]) -> str:
    return f"one process with {', '.join(words)}" if words else "one process"
