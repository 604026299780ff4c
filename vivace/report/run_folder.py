"""What lies in a run's folder, as records: a proof with its trials, findings, a measurement, a finder's search."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vivace.errors import UserError
from vivace.records.base import RecordError
from vivace.records.finding import Findings
from vivace.records.hpo import Hpo
from vivace.records.measurement import Measurement
from vivace.records.proof import Proof
from vivace.records.race import Race
from vivace.records.rates import RateSearch
from vivace.records.run import Run
from vivace.records.search import BatchSearch, LoaderSearch
from vivace.records.trial import Trial

__all__ = ["RunFolder", "latest_run", "read_run"]

_RECORDS = (
    "proof.json", "findings.json", "measurement.json", "batch.json", "loader.json", "rates.json", "race.json",
    "hpo.json",
)  # fmt: skip


@dataclass(frozen=True)
class RunFolder:
    folder: Path
    proof: Proof | None = None
    findings: Findings | None = None
    measurement: Measurement | None = None
    batch: BatchSearch | None = None
    loader: LoaderSearch | None = None
    race: Race | None = None
    hpo: Hpo | None = None
    run: Run | None = None
    """Of a folder that holds nothing else: a training with practices."""
    rates: RateSearch | None = None
    trials: tuple[Trial, ...] = ()
    """In the order in which they ran, as far as the proof tells it."""
    unreadable: tuple[str, ...] = ()
    """Trials whose record is damaged: the page says so instead of leaving them out in silence."""


def read_run(folder: Path) -> RunFolder:
    """The records of a folder, or ``UserError`` when there are none."""
    if folder.is_file():
        folder = folder.parent if folder.name in _RECORDS else folder
    if not folder.exists():
        raise UserError(f"{folder} does not exist", hint="`vivace report` without a folder takes the latest run")
    if not folder.is_dir():
        raise UserError(f"{folder} is not a run's folder", hint="vivace report vivace-runs/NAME-001")
    if not holds_records(folder) and (folder / "run.json").is_file():
        return RunFolder(folder, run=Run.load(folder / "run.json"))
    if not holds_records(folder):
        raise UserError(
            f"{folder} contains no vivace record ({', '.join(_RECORDS)})",
            hint=_go_on(folder) or _runs_inside(folder) or _how_to_make_one(),
        )
    proof = Proof.load(path) if (path := folder / "proof.json").exists() else None
    trials, unreadable = _read_trials(folder, proof.trials if proof else ())
    return RunFolder(
        folder=folder,
        proof=proof,
        findings=Findings.load(path) if (path := folder / "findings.json").exists() else None,
        measurement=Measurement.load(path) if (path := folder / "measurement.json").exists() else None,
        batch=BatchSearch.load(path) if (path := folder / "batch.json").exists() else None,
        loader=LoaderSearch.load(path) if (path := folder / "loader.json").exists() else None,
        rates=RateSearch.load(path) if (path := folder / "rates.json").exists() else None,
        race=Race.load(path) if (path := folder / "race.json").exists() else None,
        hpo=Hpo.load(path) if (path := folder / "hpo.json").exists() else None,
        trials=trials,
        unreadable=unreadable,
    )


def latest_run(*bases: Path) -> Path:
    """The folder under one of ``bases`` whose record was written last."""
    found = _latest_inside(*bases)
    if found is None:
        raise UserError(f"there is no run with records under {bases[0]}/", hint=_how_to_make_one())
    return found


def _latest_inside(*bases: Path) -> Path | None:
    written = {folder: _written_at(folder) for base in bases for folder in base.glob("*/") if holds_records(folder)}
    return max(written, key=lambda folder: (written[folder], folder.name), default=None)


def holds_records(folder: Path) -> bool:
    return any((folder / name).is_file() for name in _RECORDS)


def _written_at(folder: Path) -> float:
    return max((folder / name).stat().st_mtime for name in _RECORDS if (folder / name).is_file())


def _read_trials(folder: Path, told: Sequence[str]) -> tuple[tuple[Trial, ...], tuple[str, ...]]:
    """The proof names its trials in the order they ran; others (of a tune that goes on) come after, by name."""
    order = {Path(name).name: n for n, name in enumerate(told)}
    paths = sorted(folder.glob("trials/*/trial.json"), key=lambda p: (order.get(p.parent.name, len(order)), str(p)))
    trials, unreadable = [], []
    for path in paths:
        try:
            trials.append(Trial.load(path))
        except RecordError as error:
            unreadable.append(error.message)
    return tuple(trials), tuple(unreadable)


def _runs_inside(folder: Path) -> str | None:
    latest = _latest_inside(folder)
    return f"it holds runs; the latest: vivace report {shlex.quote(str(latest))}" if latest is not None else None


def _go_on(folder: Path) -> str | None:
    """A tune that was stopped left its options, and no proof yet."""
    unfinished = (folder / "tune.json").is_file()
    return (
        f"its tune is not finished; go on with: vivace tune --resume {shlex.quote(str(folder))}" if unfinished else None
    )


def _how_to_make_one() -> str:
    return "make one with `vivace tune -- COMMAND`, `vivace check -- COMMAND` or `vivace measure -- COMMAND`"
