"""``find batch``: one fresh process per size; the throughput curve, its knee, the largest size with a margin.

The size that a run really had is read from its measurement: a flag that changes nothing is an error, not a result.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rich.markup import escape

from vivace.errors import UserError
from vivace.measure.command import Progress, Sink
from vivace.records.base import last_line
from vivace.records.measurement import Measurement
from vivace.records.privacy import safe_command
from vivace.records.search import BatchSearch, BatchTried
from vivace.records.trial import Outcome, Trial
from vivace.tune.bench import Bench, Interrupted
from vivace.tune.finders.asked import Asked
from vivace.tune.finders.batch_size import micro_batch
from vivace.tune.finders.flags import check_flag, value_of, with_value
from vivace.tune.finders.room import room_of
from vivace.tune.finders.scaling import advice_for, as_if_it_fitted
from vivace.tune.finders.sizes import KNEE_SHARE, fits, knee, largest, next_size
from vivace.tune.short_scripts import refuse_too_short
from vivace.tune.trials import TrialSettings, does_not_train

__all__ = ["RECORD", "find_batch"]

RECORD = "batch.json"
_SAME = 0.02  # relative: global sizes do not always divide by the ranks


def find_batch(asked: Asked, folder: Path, sink: Sink, progress: Progress, say: Callable[[str], None]) -> BatchSearch:
    """Search until the answer is known, the time is up or Ctrl-C; what was run is on disk after every trial."""
    check_flag(asked.flag)
    settings = TrialSettings(steps=asked.steps, timeout_s=asked.timeout_s, copy=asked.copy)
    bench = Bench(asked.command, folder, asked.budget_s, settings, sink, progress, say)
    finder = _Finder(asked, folder, bench)
    try:
        finder.start()
        finder.go_on()
    except (Interrupted, KeyboardInterrupt):
        finder.ended, finder.interrupted = "interrupted", True
    return finder.save()


@dataclass
class _Finder:
    asked: Asked
    folder: Path
    bench: Bench
    tried: list[BatchTried] = field(default_factory=list)
    first_record: Measurement | None = None
    """Of the first run that trained: the script's own, or a smaller size where that does not fit."""
    own_size: int | None = None
    longest_first: tuple[str, ...] | None = None
    """The word of every run, where inputs differ in length; None as long as no run has told."""
    worst_case: str = ""
    """Which batch decided, in words; "" where all are alike."""
    samples_per_size: float | None = None
    """Measured micro-batch over the flag's value: a flag may be about all ranks together."""
    ranks: int | None = None
    longest_s: float = 0.0
    ended: str = ""
    complete: bool = False
    interrupted: bool = False

    def start(self) -> None:
        """The command as it is: its size is where the search begins."""
        trial = self._run("own", self.asked.command)
        refuse_too_short(trial, self.asked.command, self.asked.steps)
        written = value_of(self.asked.command, self.asked.flag)
        if trial.outcome is Outcome.OUT_OF_MEMORY and written is not None:
            self.own_size = written
        elif trial.outcome is not Outcome.OK or trial.measurement is None:
            smaller = f"give it a size that does: -- COMMAND {self.asked.flag} 8"
            more = "`vivace measure -- COMMAND` shows more"
            raise does_not_train(trial, smaller if trial.outcome is Outcome.OUT_OF_MEMORY else more)
        else:
            self.first_record = trial.measurement
            self.own_size = written or micro_batch(trial.measurement)
            self.samples_per_size = micro_batch(trial.measurement) / self.own_size
        self._note(self.own_size, self._with_the_longest_batch(trial))

    def _with_the_longest_batch(self, trial: Trial) -> Trial:
        """After the first size that trains: where inputs differ in length, the longest batch must fit too.

        The same once more with that batch first; or ``trial``, where there is none to be had.
        """
        record = trial.measurement
        if self.longest_first is not None or trial.outcome is not Outcome.OK or record is None:
            return trial
        self.longest_first = ()
        if not record.inputs_vary:
            return trial
        word = f"probe:longest_first={2 * max(1, round(record.micro_batches or 1)) + 1}"
        longest = self._run(f"{trial.name[4:]}-longest-first", self.bench.command, (word,))
        answer = longest.measurement.practices.get(word) if longest.measurement else None
        applied = answer is not None and answer.applied
        text = answer.text if answer is not None else ""
        if longest.outcome is not Outcome.OUT_OF_MEMORY and not applied:
            self.worst_case = _longest_seen(record, why_not=text)
            return trial
        self.longest_first = (word,)
        what = text or "this size does not hold it"
        self.worst_case = (
            f"inputs differ in length ({record.input_shapes} shapes), so the longest batch decided: {what}"
        )
        return longest

    def go_on(self) -> None:
        assert self.own_size is not None
        while True:
            wanted = next_size(self.tried, self.own_size, self.asked.margin_gib, self.asked.values)
            if wanted.size is None:
                self.ended, self.complete = wanted.why, True
                return
            if not self.bench.has_time_for(self.longest_s):
                self.ended = "the time budget is used up"
                return
            trial = self._run(f"size-{wanted.size}", with_value(self.asked.command, self.asked.flag, wanted.size))
            self._refuse_a_flag_that_is_none(trial)
            self._note(wanted.size, self._with_the_longest_batch(trial))

    def _run(self, label: str, command: tuple[str, ...], words: tuple[str, ...] = ()) -> Trial:
        self.bench.command = command
        trial = self.bench.run(label, words or self.longest_first or ())
        self.longest_s = max(self.longest_s, trial.seconds)
        return trial

    def _refuse_a_flag_that_is_none(self, trial: Trial) -> None:
        """The first size that is asked for crashes: is it the size, or does the script not know the flag?"""
        flag, known = self.asked.flag, value_of(self.asked.command, self.asked.flag) is not None
        if trial.outcome is not Outcome.CRASH or known or len(self.tried) > 1 or self.own_size is None:
            return
        again = self._run("own-with-flag", with_value(self.asked.command, flag, self.own_size))
        if again.outcome is not Outcome.OK:
            raise UserError(
                f"the command fails with {flag} although it trains without: {last_line(again.message)}",
                hint="--flag names the option that sets the batch size: --flag --batch-size, or --flag data.batch=",
            )

    def _note(self, size: int, trial: Trial) -> None:
        one = self._read(size, trial)
        self.tried = sorted([*self.tried, one], key=lambda tried: tried.size)
        self.save()
        self.bench.say(f"  {_line(one, fits(one, self.asked.margin_gib))}")

    def _read(self, size: int, trial: Trial) -> BatchTried:
        record, place = trial.measurement, f"trials/{trial.name}"
        if trial.outcome is not Outcome.OK or record is None:
            return BatchTried(size=size, outcome=trial.outcome, message=trial.message, trial=place)
        micro = micro_batch(record)
        self.first_record = self.first_record or record
        self._check_that_it_followed(size, micro)
        self.samples_per_size = self.samples_per_size or micro / size
        self.ranks = self.ranks or len(record.ranks)
        problem = self._problem(size, micro, len(record.ranks))
        room = room_of(record)
        return BatchTried(
            size=size,
            outcome="ok" if not problem else "crash",
            batch_size=record.batch_size,
            global_batch_size=record.global_batch_size,
            samples_per_s=record.samples_per_s if not problem else None,
            step_ms=record.step_ms,
            memory_gib=room.used_gib if room else None,
            margin_gib=room.left_gib if room else None,
            ranks=len(record.ranks),
            message=problem,
            trial=place,
        )

    def _check_that_it_followed(self, size: int, micro: int) -> None:
        """Only the first size that differs from the script's own can tell that a flag does nothing."""
        trained = [one for one in self.tried if one.trained]
        if self.samples_per_size is None or len(trained) != 1 or size == trained[0].size:
            return
        if micro == round(self.samples_per_size * trained[0].size):
            raise UserError(
                f"{self.asked.flag} {size} did not change the batch: {micro} samples were measured, as with "
                f"{trained[0].size}",
                hint="--flag names the option that sets the batch size; a shell script must pass its arguments on",
            )

    def _problem(self, size: int, micro: int, ranks: int) -> str:
        assert self.samples_per_size is not None
        if ranks < (self.ranks or 0):
            return f"only {ranks} of {self.ranks} ranks completed"
        expected = self.samples_per_size * size
        if abs(micro - expected) > max(1.0, _SAME * expected):
            return f"the script did not take this size: {micro} samples were measured (has the data set no more?)"
        return ""

    def save(self) -> BatchSearch:
        asked, margin = self.asked, self.asked.margin_gib
        chosen = knee(self.tried, margin)
        command = with_value(asked.command, asked.flag, chosen) if chosen is not None else ()
        room = room_of(self.first_record) if self.first_record else None
        bad = [one.size for one in self.tried if not fits(one, margin)]
        top = largest(self.tried, margin)
        search = BatchSearch(
            command=safe_command(asked.command),
            flag=asked.flag,
            own_size=self.own_size,
            tried=tuple(self.tried),
            margin_gib=margin,
            memory=room.memory if room else None,
            limit_gib=room.limit_gib if room else None,
            knee=chosen,
            largest=top,
            first_too_large=min((size for size in bad if top is None or size > top), default=None),
            complete=self.complete,
            interrupted=self.interrupted,
            ended=self.ended,
            advice=self._advice(chosen),
            run_with=shlex.join(safe_command(command)),
            notes=tuple(self._notes()),
            machine=self.first_record.machine if self.first_record else None,
        )
        search.save(self.folder / RECORD)
        return search

    def _advice(self, chosen: int | None) -> tuple[str, ...]:
        by_size = {one.size: one for one in self.tried}
        own = by_size.get(self.own_size or 0)
        if chosen is None or own is None or self.first_record is None:
            return ()
        trained = [one for one in self.tried if one.trained]
        return advice_for(own if own.trained else as_if_it_fitted(own, trained), by_size[chosen], self.first_record)

    def _notes(self) -> list[str]:
        close = f"{100 * (1 - KNEE_SHARE):.0f} %"
        notes = [f"the knee is the smallest size within {close} of the best throughput that leaves the margin"]
        if self.worst_case:
            notes.append(self.worst_case)
        if self.tried and all(one.margin_gib is None for one in self.tried):
            notes.append("free memory could not be measured, so the margin was not checked")
        return notes


def _longest_seen(record: Measurement, why_not: str) -> str:
    seen = len(record.trajectory) or record.warmup_steps + record.steps
    batches = max((loader.epoch_batches or 0 for loader in record.loaders), default=0)
    share = f"about {min(1.0, seen / batches):.1%} of an epoch" if batches else "an unknown part of an epoch"
    return (
        f"inputs had {record.input_shapes} different shapes: the longest batch among the {seen} steps seen decided "
        f"({share}). A longer one may come: leave a larger margin"
        + (f" (the longest could not be put first: {why_not})" if why_not else "")
    )


def _line(one: BatchTried, good: bool) -> str:
    mark = "[green]✓[/]" if good else "[yellow]–[/]"
    if not one.trained:
        return f"{mark} {one.size:>8,}  {escape(last_line(one.message)) or one.outcome}"
    room = f", {one.margin_gib:.2f} GiB left" if one.margin_gib is not None else ""
    return f"{mark} {one.size:>8,}  {one.samples_per_s:,.1f} samples/s{room}"
