"""The order of the tests on several workers: each gets as much slow work as the others, and begins with it.

``pytest -n 4 --dist worksteal`` gives each worker the same number of neighbouring tests. In the order of the files one
of them gets nearly all that is slow, and the last slow test may begin when the others are done. ``durations.csv`` holds
what slow tests took (roughly: only the order matters); ``pytest -n 4 --record-durations`` writes it. Of others, the
fixtures tell.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest

__all__ = ["Recorder", "arranged", "expected_s", "read_durations", "without_parameters", "write_durations"]

DURATIONS = Path(__file__).parent / "durations.csv"
_SLOW_S = 1.0
# A real process that imports torch took 5 to 14 s of CPU time, a forked one 0.7 to 1.7; a job also waits for Slurm.
_BY_FIXTURE_S = {"slurm": 10.0, "slurm_with_accounts": 10.0, "vivace": 6.0, "vivace_here": 1.0, "forked_scripts": 1.0}


def without_parameters(test: str) -> str:
    """
    >>> without_parameters("tests/a.py::test_b[c::d]")
    'tests/a.py::test_b'
    """
    return test.partition("[")[0]


def expected_s(test: str, fixtures: Iterable[str], known: Mapping[str, float]) -> float:
    """As recorded, or by what it starts."""
    guess = max((_BY_FIXTURE_S.get(name, 0.0) for name in fixtures), default=0.0)
    return known.get(without_parameters(test), guess)


def read_durations(path: Path = DURATIONS) -> dict[str, float]:
    with path.open(newline="", encoding="utf-8") as file:
        return {row["test"]: float(row["seconds"]) for row in csv.DictReader(file)}


def write_durations(seconds: Mapping[str, float], path: Path = DURATIONS) -> None:
    """``seconds``: of each test, with its parameters. The slowest first."""
    slowest: dict[str, float] = {}
    for test, duration_s in seconds.items():
        name = without_parameters(test)
        slowest[name] = max(slowest.get(name, 0.0), duration_s)
    slow = sorted((item for item in slowest.items() if item[1] >= _SLOW_S), key=lambda item: (-item[1], item[0]))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["test", "seconds"])
        writer.writerows((name, f"{duration_s:.1f}") for name, duration_s in slow)


def arranged(tests: Sequence[str], seconds: Sequence[float], workers: int) -> list[int]:
    """Indices of the tests in their new order. Slow tests of one file stay together, for what they share: the files go
    one by one, the slowest first, to the worker with the least. The rest fills up."""
    slow: dict[str, list[int]] = defaultdict(list)
    quick: list[int] = []
    for index, test in enumerate(tests):
        if seconds[index] >= _SLOW_S:
            slow[test.partition("::")[0]].append(index)
        else:
            quick.append(index)
    files_s = {name: sum(seconds[index] for index in indices) for name, indices in slow.items()}
    shares: list[list[int]] = [[] for _ in range(workers)]
    loads_s = [0.0] * workers
    for name in sorted(files_s, key=lambda name: (-files_s[name], name)):
        least = min(range(workers), key=lambda worker: loads_s[worker])
        shares[least] += slow[name]
        loads_s[least] += files_s[name]
    sizes = [(len(tests) + worker) // workers for worker in range(workers)]  # as pytest-xdist cuts them
    too_many = [index for share, size in zip(shares, sizes, strict=True) for index in share[size:]]
    filling = iter([*too_many, *quick])
    for share, size in zip(shares, sizes, strict=True):
        del share[size:]
        share += [next(filling) for _ in range(size - len(share))]
    return [index for share in shares for index in share]


class Recorder:
    """A plugin of pytest: adds up what each test takes, with its fixtures, and writes it at the end."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] += report.duration

    def pytest_sessionfinish(self) -> None:
        write_durations(self.seconds)
