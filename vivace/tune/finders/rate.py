"""``find lr``: one run of the command in which every optimizer step has another learning rate.

The rates are set from inside the process (``measure/inside/rate_test.py``), which ends after the last one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vivace.errors import UserError
from vivace.hardware.machine import this_machine
from vivace.hardware.software import Software
from vivace.measure.command import Outcome, Progress, Sink, run_command
from vivace.measure.copied_folder import CopyOptions, copied_folder, own_folder
from vivace.measure.written_files import look, what_changed
from vivace.protocol.rates import RATES, RateEnd, RateTest, SeenRates
from vivace.protocol.request import Entry, ProcessRequest
from vivace.protocol.unmeasured import read_unmeasured
from vivace.records.base import last_line
from vivace.records.privacy import safe_command
from vivace.records.rates import RateSearch, RateTried
from vivace.tune.finders.rate_curve import smoothed, suggest

__all__ = ["RECORD", "AskedRate", "find_rate"]

RECORD = "rates.json"
_REFUSED = {
    RateEnd.TWO_OPTIMIZERS: "the script steps two optimizers: which one's rate?",
    RateEnd.NO_RATE: "the optimizer has no learning rate (lr) in its parameter groups",
}


@dataclass(frozen=True)
class AskedRate:
    command: tuple[str, ...]
    test: RateTest
    timeout_s: float | None = None
    copy: CopyOptions | None = None


def find_rate(asked: AskedRate, folder: Path, sink: Sink, progress: Progress) -> RateSearch:
    request = ProcessRequest(
        str(folder.resolve()), entry=Entry.RATES, measure=False, seed_offset=0, rate_test=asked.test
    )
    own = own_folder(Path.cwd(), folder)
    before = look(Path.cwd(), own) if asked.copy is None else None
    with _place(asked, folder) as place:
        outcome = run_command(
            asked.command, request, sink, progress, asked.timeout_s, {"PYTHONUNBUFFERED": "1"}, cwd=place
        )
    changed = what_changed(before, look(Path.cwd(), own)) if before is not None else None
    seen = _read(folder)
    if seen is None or not seen.rates:
        raise _nothing_seen(seen, outcome, folder)
    notes = [f"{changed.sentence()}; --in-copy leaves them alone"] if changed is not None else []
    if len(set(seen.own_rates)) > 1:
        ratios = ", ".join(f"{rate:g}" for rate in seen.own_rates)
        notes.append(f"the groups' own rates are {ratios}: the rates shown are the largest group's, ratios are kept")
    search = _search(asked, seen, outcome, notes)
    search.save(folder / RECORD)
    return search


@contextlib.contextmanager
def _place(asked: AskedRate, folder: Path) -> Iterator[Path | None]:
    if asked.copy is None:
        yield None
        return
    with copied_folder(Path.cwd(), folder, asked.copy) as place:
        yield place


def _read(folder: Path) -> SeenRates | None:
    """Of the lowest rank that trained."""
    found = []
    for path in folder.glob(RATES):
        with contextlib.suppress(OSError, ValueError):
            found.append(SeenRates.from_text(path.read_text()))
    return min(found, key=lambda seen: (seen.rank, -len(seen.rates)), default=None)


def _nothing_seen(seen: SeenRates | None, outcome: Outcome, folder: Path) -> UserError:
    if seen is not None and seen.end in _REFUSED:
        return UserError(_REFUSED[seen.end], hint="a script with one optimizer can be tested")
    if why := read_unmeasured(folder):
        return UserError(f"no rate was tried: {why.text}")
    if seen is not None:
        return UserError("the script ended after one optimizer step: nothing to compare", hint="give it more steps")
    said = ""
    with contextlib.suppress(OSError):
        data = (folder / "stderr.log").read_bytes()[-4096:]
        said = last_line(data.decode(errors="replace"))
    code = f" (exit code {outcome.exit_code}: {said})" if outcome.exit_code else ""
    return UserError(f"no step of a torch optimizer was seen{code}", hint=f"the command's output is in {folder}")


def _search(asked: AskedRate, seen: SeenRates, outcome: Outcome, notes: list[str]) -> RateSearch:
    assert seen.first_loss is not None
    curve = smoothed(seen.losses, seen.first_loss)
    found = suggest(seen.rates, seen.losses, seen.first_loss)
    ended = {
        RateEnd.ALL_TRIED: f"all {asked.test.steps} rates were tried",
        RateEnd.DIVERGED: f"the loss diverged at {seen.rates[-1]:.2g}",
        RateEnd.SCRIPT_ENDED: f"the script ended after {len(seen.rates)} of {asked.test.steps} rates",
    }[seen.end]
    return RateSearch(
        command=safe_command(asked.command), optimizer=seen.optimizer, own_rates=seen.own_rates,
        first_loss=seen.first_loss,
        tried=tuple(
            RateTried(rate=rate, loss=loss, smoothed=value)
            for rate, loss, value in zip(seen.rates, seen.losses, curve, strict=True)
        ),
        steepest=found.steepest, tenth_of_best=found.tenth_of_best, diverges=found.diverges, suggested=found.suggested,
        complete=seen.end in (RateEnd.ALL_TRIED, RateEnd.DIVERGED), interrupted=outcome.interrupted, ended=ended,
        notes=tuple(notes), machine=this_machine(Software()),
    )  # fmt: skip
