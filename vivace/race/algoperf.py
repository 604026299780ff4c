"""AlgoPerf's score over several workloads: how close an entry comes to the fastest one on each of them.

On a workload, an entry's time is the median over its seeds, infinity if fewer than half arrive or if it takes more than
four times as long as the fastest. The performance profile rho(tau) is the share of workloads on which it takes at most
tau times the fastest time; the score is its mean between 1 and 4 (Dahl et al. 2023, arXiv:2306.07179).
That integral has a closed form, the mean of max(0, (4 - r) / 3), which is what is computed here. The competition's own
code takes 100 points and the trapezoidal rule, which differs by about 0.001.

>>> round(score([1, 1.2, 2, 3.9, 4.1, math.inf, 1, 1.5]), 4)
0.5583
"""

from __future__ import annotations

import math
import statistics
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vivace.errors import UserError
from vivace.records.race import Race

__all__ = ["Leaderboard", "Scored", "leaderboards", "profile", "score", "score_races"]

R_MAX = 4.0
_DATA = Path(__file__).parent / "data" / "algoperf.toml"


@dataclass(frozen=True)
class Scored:
    """``ratios``: on each workload, of its time to the fastest one's. ``geometric_mean``: of those where it arrived."""

    name: str
    score: float
    ratios: tuple[float, ...]

    @property
    def geometric_mean(self) -> float | None:
        finite = [ratio for ratio in self.ratios if math.isfinite(ratio)]
        return statistics.geometric_mean(finite) if finite else None


@dataclass(frozen=True)
class Leaderboard:
    version: str
    source: str
    tracks: Mapping[str, Mapping[str, float]]


def profile(ratios: Sequence[float], tau: float) -> float:
    """The share of workloads on which it takes at most ``tau`` times the fastest time."""
    return sum(ratio <= tau for ratio in ratios) / len(ratios)


def score(ratios: Sequence[float]) -> float:
    return statistics.fmean(max(0.0, (R_MAX - ratio) / (R_MAX - 1)) for ratio in ratios)


def score_races(races: Sequence[Race]) -> list[Scored]:
    """Entries of the same name in all races, the best score first. Each race is a workload."""
    names = [entry.name for entry in races[0].entries] if races else []
    for race in races:
        if {entry.name for entry in race.entries} != set(names):
            raise UserError(
                f"{race.folder or 'a race'} has the entries {', '.join(e.name for e in race.entries)}; "
                f"the first one has {', '.join(names)}",
                hint="every workload must have raced the same entries, by name",
            )
    ratios: dict[str, list[float]] = {name: [] for name in names}
    for race in races:
        times = {name: _time(race, name) for name in names}
        fastest = min(times.values())
        for name, time in times.items():
            ratio = time / fastest if math.isfinite(time) else math.inf
            ratios[name].append(ratio if ratio <= R_MAX else math.inf)
    scored = [Scored(name, score(values), tuple(values)) for name, values in ratios.items()]
    return sorted(scored, key=lambda one: -one.score)


def _time(race: Race, name: str) -> float:
    """A run that never arrived is later than all; the median of an even number is the later of the two."""
    times = sorted(run.time_s if run.arrived else math.inf for run in race.runs if run.entry == name)
    if not times:
        raise UserError(f"{name} has no runs in {race.folder or 'a race'}", hint="vivace race --resume FOLDER")
    return times[len(times) // 2]


def leaderboards() -> list[Leaderboard]:
    """The final one first."""
    data = tomllib.loads(_DATA.read_text())
    return [
        Leaderboard(one["version"], one["source"], {track: one[track] for track in ("external", "self-tuning")})
        for one in data["leaderboard"]
    ]
