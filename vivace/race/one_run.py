"""One run of a race: starts the entry's command with its seed, and ends it at the target or the limit."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from vivace.durations import Duration, DurationUnit
from vivace.errors import UserError
from vivace.measure.command import Sink
from vivace.measure.copied_folder import copied_folder
from vivace.measure.told import read_told
from vivace.protocol.unmeasured import read_unmeasured
from vivace.race.asked import AskedEntry, AskedRace, SeedBy
from vivace.race.journal import Journal
from vivace.race.metrics.readings import Problem, Reading
from vivace.race.watching import EndedBy, Watch, Watched, watch
from vivace.records.base import last_line
from vivace.records.race import Clock, CurvePoint, Outcome, RaceRun

__all__ = ["Interrupted", "run_once"]

_JOURNAL_S = 0.15  # the last step before an evaluation is in the journal by then
_POLL_S = 0.5
_MOST_POINTS = 500
_SHORTEST_S = 1e-3  # of a time to the target: logarithms are taken of it


class Interrupted(Exception):
    """Ctrl-C while a run was going on: it is not kept."""


def run_once(asked: AskedRace, entry: AskedEntry, seed: int, folder: Path, sink: Sink) -> RaceRun:
    """Raises a ``UserError`` where the metric cannot be read or a practice does not apply: nothing to race then."""
    return _OneRun(asked, entry, seed, folder).run(sink)


class _OneRun:
    def __init__(self, asked: AskedRace, entry: AskedEntry, seed: int, folder: Path) -> None:
        self.asked, self.entry, self.seed, self.folder = asked, entry, seed, folder
        self.target, self.limit = asked.target, asked.duration
        self.journal = Journal(folder)
        self.in_a_row: list[Reading] = []  # readings at the target, one after the other
        self.epoch: float | None = None
        self.polled_s = 0.0

    def run(self, sink: Sink) -> RaceRun:
        with self._place() as place:
            by = self.asked.seed_by(self.entry)
            request = Watch(
                self.asked.words(self.entry, self.seed), self.folder, self.target.metric, self.asked.source,
                expected=self.target.value, practices=self.entry.practices, journal=True, cwd=place,
                seed_offset=self.seed if by is SeedBy.SHIFT else None,
                timeout_s=self._wall_limit_s(),
            )  # fmt: skip
            watched = watch(request, self._on_reading, sink, on_poll=self._on_poll)
        if watched.ended is EndedBy.INTERRUPTED:
            raise Interrupted
        self.journal.read()
        self._refuse_what_cannot_race(watched)
        return self._record(watched)

    @contextlib.contextmanager
    def _place(self) -> Iterator[Path | None]:
        if self.asked.copy is None:
            yield None
        else:
            with copied_folder(Path.cwd(), self.folder, self.asked.copy) as place:
                yield place

    def _wall_limit_s(self) -> float | None:
        return self.limit.seconds if self.limit is not None and self.asked.clock is Clock.WALL else None

    def _on_reading(self, reading: Reading) -> bool:
        if self.asked.clock is Clock.TRAINING and self.journal.begun_at is None:
            self.journal.read()
            if self.journal.begun_at is None:
                return True  # there is no clock, and waiting for the run's end would not bring one
        self.epoch = reading.epoch if reading.epoch is not None else self.epoch
        self.in_a_row = [*self.in_a_row, reading] if self.target.reached(reading.value) else []
        if len(self.in_a_row) < self.asked.confirm:
            return self._is(DurationUnit.EPOCHS) and self._epochs_over()
        time.sleep(_JOURNAL_S)
        return True

    def _on_poll(self, seconds: float) -> bool:
        if self.limit is None or seconds - self.polled_s < _POLL_S:
            return False
        self.polled_s = seconds
        self.journal.read()
        now = time.time()
        if self.limit.unit is DurationUnit.SECONDS:
            return self.journal.begun_at is not None and self._clock_s(now) > self.limit.amount
        steps, samples = self.journal.steps_at(now)
        done = {DurationUnit.STEPS: steps, DurationUnit.SAMPLES: samples}.get(self.limit.unit)
        return done is not None and done >= self.limit.amount

    def _is(self, unit: DurationUnit) -> bool:
        return self.limit is not None and self.limit.unit is unit

    def _epochs_over(self) -> bool:
        assert isinstance(self.limit, Duration)
        if self.epoch is None:
            raise UserError(
                f"--limit {self.limit}: the script does not say which epoch it is in", hint="--limit 20min or 5000steps"
            )
        return self.epoch >= self.limit.amount

    def _clock_s(self, at: float) -> float:
        """Of the moment ``at``, by the race's clock. Readings from before the first batch are at 0."""
        begun = self.journal.begun_at
        assert begun is not None
        return max(0.0, at - begun - self.journal.compiling_s(at))

    def _refuse_what_cannot_race(self, watched: Watched) -> None:
        problem = watched.problem
        if problem is not None and problem.problem is not Problem.NOT_A_NUMBER and not watched.crashed:
            raise UserError(f"{self.entry.name}: {problem.message}", hint=problem.hint)
        if watched.crashed and not watched.readings:
            raise UserError(
                f"{self.entry.name} failed with exit code {watched.exit_code} before its first evaluation: "
                f"{self._last_words()}",
                hint=f"its output is in {self.folder}",
            )
        for word, answer in read_told(self.folder).items():
            if word in self.entry.practices and not answer.applied:
                raise UserError(f"{self.entry.name}: {word} does not apply: {answer}")
        if self.asked.clock is Clock.TRAINING and self.journal.begun_at is None:
            why = read_unmeasured(self.folder)
            raise UserError(
                f"vivace cannot see when the training of {self.entry.name} begins"
                + (f": {why.text}" if why is not None else ": no batch, forward or step of PyTorch was seen"),
                hint="--clock wall counts everything from the start of the command",
            )

    def _last_words(self) -> str:
        with contextlib.suppress(OSError), open(self.folder / "stderr.log", "rb") as file:
            file.seek(max(0, file.seek(0, 2) - 4096))
            return last_line(file.read().decode(errors="replace"))
        return ""

    def _record(self, watched: Watched) -> RaceRun:
        arrived = watched.ended is EndedBy.READING and len(self.in_a_row) >= self.asked.confirm
        at = self._at(watched, self.in_a_row[-self.asked.confirm]) if arrived else watched.started_at + watched.seconds
        at_s = at - watched.started_at
        steps, samples = self.journal.steps_at(at)
        by_training = self.asked.clock is Clock.TRAINING
        begun, readings = self.journal.begun_at, watched.readings
        last = readings[-1] if readings else None
        return RaceRun(
            entry=self.entry.name, seed=self.seed, outcome=_outcome(watched, arrived),
            time_s=max(_SHORTEST_S, self._clock_s(at) if by_training else at_s),
            wall_s=watched.seconds, start_up_s=None if begun is None else begun - watched.started_at,
            compile_s=self.journal.compiling_s(at), steps=steps, samples=samples, joules=self.journal.joules(at),
            epoch=self.epoch, best=self._best(readings), metric=last.name if last else "",
            source=str(last.source) if last else "", example=last.text if last else "",
            curve=self._curve(watched), evaluations=len(readings), exit_code=watched.exit_code,
            message=watched.problem.message if watched.problem is not None else self._last_words_of(watched),
            folder=str(self.folder),
        )  # fmt: skip

    def _last_words_of(self, watched: Watched) -> str:
        return self._last_words() if watched.crashed else ""

    def _best(self, readings: tuple[Reading, ...]) -> float | None:
        best: float | None = None
        for reading in readings:
            if best is None or self.target.direction.better(reading.value, best):
                best = reading.value
        return best

    def _at(self, watched: Watched, reading: Reading) -> float:
        """When it was printed, as the process says; else when it was read, which is later on a busy machine."""
        read_at = watched.started_at + reading.at_s
        return self.journal.printed_at(reading.text, read_at) or read_at

    def _curve(self, watched: Watched) -> tuple[CurvePoint, ...]:
        readings = watched.readings
        every = max(1, -(-len(readings) // _MOST_POINTS))
        kept = [reading for number, reading in enumerate(reversed(readings)) if number % every == 0][::-1]
        points = []
        for reading in kept:
            at = self._at(watched, reading)
            time_s = self._clock_s(at) if self.asked.clock is Clock.TRAINING else at - watched.started_at
            points.append(
                CurvePoint(time_s=time_s, value=reading.value, steps=self.journal.steps_at(at)[0], epoch=reading.epoch)
            )
        return tuple(points)


def _outcome(watched: Watched, arrived: bool) -> Outcome:
    if arrived:
        return Outcome.ARRIVED
    if watched.problem is not None and watched.problem.problem is Problem.NOT_A_NUMBER:
        return Outcome.DIVERGED
    if watched.crashed:
        return Outcome.CRASHED
    return Outcome.ENDED if watched.ended is EndedBy.ITSELF else Outcome.LIMIT
