"""``find loader``: workers and prefetch, each setting in a fresh process, with the memory that the workers take.

Numbers of workers double as long as steps wait for data: up to the cores, and beyond where the workers do not compute
but wait themselves (network storage). The smallest setting within 3 % of the best wins. Where the loader is not the
limit, that is said and nothing is tried.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.markup import escape

from vivace.errors import UserError
from vivace.measure.command import Progress, Sink
from vivace.practices.engine.loaders import waited_for
from vivace.practices.engine.registry import all_practices
from vivace.practices.engine.worker_counts import cores_of_a_rank, most_workers
from vivace.records.base import last_line
from vivace.records.measurement import Measurement
from vivace.records.privacy import safe_command
from vivace.records.search import LoaderSearch, LoaderTried
from vivace.records.trial import Outcome, Trial
from vivace.tune.bench import Bench, Interrupted
from vivace.tune.finders.asked import Asked
from vivace.tune.finders.batch_size import check_batch_is_known
from vivace.tune.short_scripts import refuse_too_short
from vivace.tune.trials import TrialSettings, does_not_train

__all__ = ["RECORD", "best_of", "find_loader", "next_workers"]

RECORD = "loader.json"
NO_LIMIT_SHARE = 0.03  # of a step: a loader that takes less holds nothing back
CLOSE = 0.97  # of the best throughput
_PREFETCHES = (4, 8)  # batches a worker; torch's own is 2
_OWN_PREFETCH = 2
_BEYOND = 1.05  # what its waits explain
_IN_VAIN = 2  # doublings in a row that did not help, and nothing will: one may be a run that was slow by chance


def find_loader(asked: Asked, folder: Path, sink: Sink, progress: Progress, say: Callable[[str], None]) -> LoaderSearch:
    """Search until the answer is known, the time is up or Ctrl-C; what was run is on disk after every trial."""
    settings = TrialSettings(steps=asked.steps, timeout_s=asked.timeout_s, copy=asked.copy)
    bench = Bench(asked.command, folder, asked.budget_s, settings, sink, progress, say)
    finder = _Finder(asked, folder, bench)
    try:
        finder.start()
        if finder.limits:
            finder.go_on()
    except (Interrupted, KeyboardInterrupt):
        finder.ended, finder.interrupted, finder.complete = "interrupted", True, False
    return finder.save()


def next_workers(tried: Sequence[LoaderTried], cores: int) -> int | None:
    """Doubling while steps wait for data; from a script that has as many as make sense, halving while nothing is lost.

    How long steps wait decides, not how much faster the last setting was: one worker in place of none only hides the
    step behind the loading, which may be no gain at all, and two then halve the time. ``tried`` begins with the
    script's own setting.
    """
    own = tried[0]
    if own.workers >= (own.most_workers or cores):
        return _fewer(tried)
    upwards = sorted((one for one in tried if one.workers >= own.workers and one.trained), key=lambda one: one.workers)
    last = upwards[-1]
    if any(not one.trained for one in tried) or not _waits(last) or _in_vain(upwards):
        return None
    following = max(1, 2 * last.workers)
    if following <= (last.most_workers or cores):
        return following
    return cores if last.workers < cores else None


def _fewer(tried: Sequence[LoaderTried]) -> int | None:
    counts = {one.workers: one.samples_per_s or 0.0 for one in tried}
    smallest = min(counts)
    return smallest // 2 if smallest > 1 and counts[smallest] >= CLOSE * max(counts.values()) else None


def _in_vain(upwards: Sequence[LoaderTried]) -> bool:
    """The last doublings did not help. A step from no worker to one is none."""
    rates = [one.samples_per_s or 0.0 for one in upwards if one.workers]
    if len(rates) <= _IN_VAIN:
        return False
    return max(rates[-_IN_VAIN:]) < max(rates[:-_IN_VAIN]) / CLOSE


def best_of(tried: Sequence[LoaderTried]) -> LoaderTried | None:
    """The smallest setting within 3 % of the best throughput: fewest workers, then the shortest queue."""
    trained = [one for one in tried if one.trained]
    fastest = max((one.samples_per_s or 0.0 for one in trained), default=0.0)
    close = [one for one in trained if (one.samples_per_s or 0.0) >= CLOSE * fastest]
    return min(close, key=lambda one: (one.workers, one.prefetch or 0), default=None)


@dataclass
class _Finder:
    asked: Asked
    folder: Path
    bench: Bench
    tried: list[LoaderTried] = field(default_factory=list)
    own: Measurement | None = None
    limits: bool = False
    cores: int = 1
    ended: str = ""
    complete: bool = False
    interrupted: bool = False

    def start(self) -> None:
        """The command as it is: does it wait for its loader at all?"""
        trial = self.bench.run("own")
        refuse_too_short(trial, self.asked.command, self.asked.steps)
        if trial.outcome is not Outcome.OK or trial.measurement is None:
            raise does_not_train(trial)
        self.own = trial.measurement
        check_batch_is_known(self.own)
        loader = waited_for(self.own)
        if loader is None:
            raise UserError(
                "no DataLoader was seen: there is nothing to find", hint="vivace sees torch.utils.data.DataLoader only"
            )
        self.cores = cores_of_a_rank(self.own)
        self._note((), loader.num_workers, loader.prefetch_factor, trial)
        own = self.tried[0]
        self.limits = _waits(own)
        if not self.limits:
            self.complete = True
            self.ended = (
                f"the loader is not the limit: it takes {own.loader_ms or 0.0:.2f} ms of {_step_ms(own):.2f} ms"
            )

    def go_on(self) -> None:
        own = self.tried[0]
        while (count := next_workers(self.tried, self.cores)) is not None:
            if not self._try((f"workers={count}",), count, own.prefetch or _OWN_PREFETCH):
                return
        best = best_of(self.tried)
        assert best is not None
        if any(practice.name == "prefetch" for practice in all_practices()) and best.workers > 0 and _waits(best):
            for prefetch in _PREFETCHES:
                if prefetch <= (best.prefetch or _OWN_PREFETCH):
                    continue
                words = (
                    (f"prefetch={prefetch}",) if best is own else (f"workers={best.workers}", f"prefetch={prefetch}")
                )
                if not self._try(words, best.workers, prefetch):
                    return
        self.complete = True
        self.ended = _why_no_more(self.tried, self.cores)

    def _try(self, words: tuple[str, ...], workers: int, prefetch: int) -> bool:
        """False when the search must end here."""
        longest_s = max(trial.seconds for trial in self.bench.trials)
        if not self.bench.has_time_for(longest_s):
            self.ended = "the time budget is used up"
            return False
        trial = self.bench.run("-".join(words).replace("=", "-"), words)
        self._note(words, workers, prefetch, trial)
        if trial.outcome is Outcome.OK and not self.tried[-1].trained:
            refused = self.tried[-1].message
            self.ended = (
                f"the loader cannot be changed from outside: {refused}"
                if refused
                else f"no throughput could be measured with {_setting(self.tried[-1])}"
            )
            self.complete = True
            return False
        return True

    def _note(self, words: tuple[str, ...], workers: int, prefetch: int | None, trial: Trial) -> None:
        record = trial.measurement if trial.outcome is Outcome.OK else None
        refused = _refused(record, words) if record else ""
        host = record.memory.host if record else None
        loader = waited_for(record) if record else None
        one = LoaderTried(
            words=words,
            workers=workers,
            prefetch=prefetch if workers else None,
            outcome=trial.outcome,
            samples_per_s=record.samples_per_s if record and not refused else None,
            step_ms=record.step_ms if record else None,
            loader_ms=record.phases_ms["loader"].mean if record and "loader" in record.phases_ms else None,
            workers_memory_gib=host.children_rss_gib if host else None,
            workers_busy=record.workers_busy if record else None,
            most_workers=most_workers(record, loader) if record and loader else None,
            message=refused or trial.message,
            trial=f"trials/{trial.name}",
        )
        self.tried.append(one)
        self.save()
        self.bench.say(f"  {_line(one)}")

    def save(self) -> LoaderSearch:
        best = best_of(self.tried)
        own = self.tried[0] if self.tried else None
        words = best.words if best else ()
        faster = best and own and own.samples_per_s and best.samples_per_s
        search = LoaderSearch(
            command=safe_command(self.asked.command),
            tried=tuple(self.tried),
            limits=self.limits,
            workers=best.workers if best else None,
            prefetch=best.prefetch if best else None,
            words=words,
            speedup=best.samples_per_s / own.samples_per_s if faster else None,  # type: ignore[union-attr, operator]
            complete=self.complete,
            interrupted=self.interrupted,
            ended=self.ended,
            run_with=_run_with(words, safe_command(self.asked.command)),
            by_hand=_by_hand(best) if best and words else "",
            notes=tuple(_notes(best, own)),
            machine=self.own.machine if self.own else None,
        )
        search.save(self.folder / RECORD)
        return search


def _why_no_more(tried: Sequence[LoaderTried], cores: int) -> str:
    failed = [one for one in tried if not one.trained]
    if failed:
        why = last_line(failed[-1].message) or failed[-1].outcome
        return f"{_setting(failed[-1])} did not train ({why})"
    last = max(tried, key=lambda one: one.workers)
    if not _waits(last):
        return f"with {_setting(last)} hardly a step waits any longer"
    if last.workers > cores:
        return f"up to {last.workers} workers were run, on {cores} cores: they mostly wait, not compute"
    if last.workers >= cores:
        return f"up to {last.workers} workers were run: the cores that a rank may use"
    return f"more than {last.workers} workers were not run: the last doublings did not help"


def _notes(best: LoaderTried | None, own: LoaderTried | None) -> Iterator[str]:
    yield "memory of workers is what they hold resident; pages that they share are counted in each"
    if best is None or own is None or not own.samples_per_s or not best.samples_per_s or not _step_ms(own):
        return
    at_most = _step_ms(own) / max(1e-9, _step_ms(own) - (own.loader_ms or 0.0))
    if best.samples_per_s / own.samples_per_s > _BEYOND * at_most:
        yield (
            f"without its waits the script's own setting would be {at_most:.2f}× as fast; what is beyond that is the "
            "work that moved to other processes, or the noise of single runs"
        )


def _refused(record: Measurement, words: Sequence[str]) -> str:
    """Why one of the words was not applied; empty when all were."""
    for word in words:
        answer = record.practices.get(word)
        if answer is None:
            return "it was not applied"
        if not answer.applied:
            return answer.text
    return ""


def _waits(one: LoaderTried) -> bool:
    return (one.loader_ms or 0.0) >= NO_LIMIT_SHARE * _step_ms(one)


def _step_ms(one: LoaderTried) -> float:
    return one.step_ms.mean if one.step_ms else 0.0


def _run_with(words: Sequence[str], command: Sequence[str]) -> str:
    return f"vivace run --with {','.join(words)} -- {shlex.join(command)}" if words else shlex.join(command)


def _by_hand(best: LoaderTried) -> str:
    prefetch = f", prefetch_factor={best.prefetch}" if any(word.startswith("prefetch") for word in best.words) else ""
    return f"DataLoader(…, num_workers={best.workers}, persistent_workers=True{prefetch})"


def _setting(one: LoaderTried) -> str:
    return f"{one.workers} worker{'s' * (one.workers != 1)}" + (f", prefetch {one.prefetch}" if one.prefetch else "")


def _line(one: LoaderTried) -> str:
    name = _setting(one)
    if not one.trained:
        return f"[yellow]–[/] {name:24} {escape(last_line(one.message)) or one.outcome}"
    return f"[green]✓[/] {name:24} {one.samples_per_s:,.1f} samples/s, {one.workers_memory_gib or 0:.2f} GiB in workers"
