"""What a race was asked, kept in its folder so that an interrupted one can go on."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from vivace.durations import Duration, DurationUnit
from vivace.errors import UserError
from vivace.measure.copied_folder import CopyOptions
from vivace.race.targets import Target
from vivace.race.watching import MetricSource
from vivace.records.race import Clock
from vivace.tune.options_file import read_options, write_options
from vivace.tune.same_job import Job, refuse_another_job, this_job

__all__ = ["AskedEntry", "AskedRace", "SeedBy", "read_asked", "write_asked"]

FILE = "asked.json"
PLACE = "{seed}"


class SeedBy(StrEnum):
    """How a run gets its seed."""

    SHIFT = "shift"
    """From outside: the script's own seeds plus the number of the round."""
    PLACE = "place"
    """The command has ``{seed}`` in it."""
    FLAG = "flag"


@dataclass(frozen=True)
class AskedEntry:
    name: str
    command: tuple[str, ...]
    practices: tuple[str, ...] = ()


@dataclass(frozen=True)
class AskedRace:
    """``entries``: the baseline first. ``until`` and ``limit`` as they were written."""

    until: str
    entries: tuple[AskedEntry, ...]
    seeds: int = 5
    limit: str | None = None
    clock: Clock = Clock.TRAINING
    confirm: int = 1
    stop_early: bool = True
    seed_flag: str | None = None
    source: MetricSource = field(default_factory=MetricSource)
    copy: CopyOptions | None = None
    job: Job | None = None
    """Set when the race begins."""

    def __post_init__(self) -> None:
        names = [entry.name for entry in self.entries]
        if len(names) < 2:
            raise UserError("a race needs two entries", hint="--with bf16, or --entry 'name: command' twice")
        if len(set(names)) < len(names):
            raise UserError(f"two entries are called {max(names, key=names.count)!r}", hint="give each its own name")
        if self.seeds < 1 or self.confirm < 1:
            raise UserError("--seeds and --confirm must be at least 1")
        if self.duration is not None and self.duration.unit is DurationUnit.TOKENS:
            raise UserError(f"--limit {self.limit}: tokens are not counted", hint="--limit 20min, 30ep or 5000steps")

    @property
    def target(self) -> Target:
        return Target.parse(self.until)

    @property
    def duration(self) -> Duration | None:
        return Duration.parse(self.limit, "--limit") if self.limit is not None else None

    def seed_by(self, entry: AskedEntry) -> SeedBy:
        if self.seed_flag is not None:
            return SeedBy.FLAG
        return SeedBy.PLACE if any(PLACE in word for word in entry.command) else SeedBy.SHIFT

    def words(self, entry: AskedEntry, seed: int) -> tuple[str, ...]:
        """The command with its seed.

        >>> race = AskedRace("a >= 1", (AskedEntry("x", ("t", "-s{seed}")), AskedEntry("y", ("t",))), seed_flag=None)
        >>> race.words(race.entries[0], 3)
        ('t', '-s3')
        """
        words = tuple(word.replace(PLACE, str(seed)) for word in entry.command)
        if self.seed_flag is None:
            return words
        joined = self.seed_flag.endswith("=")
        return (*words, f"{self.seed_flag}{seed}") if joined else (*words, self.seed_flag, str(seed))


def write_asked(folder: Path, asked: AskedRace) -> AskedRace:
    every_word = [word for entry in asked.entries for word in entry.command]
    asked = asked if asked.job is not None else replace(asked, job=this_job(every_word))
    write_options(folder / FILE, asked)
    return asked


def read_asked(folder: Path, in_queue: bool = False) -> AskedRace:
    nothing = UserError(f"{folder} contains no race to continue", hint="vivace race --resume vivace-runs/NAME-001")
    asked = read_options(folder / FILE, AskedRace, nothing)
    refuse_another_job(asked.job, [word for entry in asked.entries for word in entry.command], in_queue)
    return asked
