"""From what was seen of a job's lives to the record: how the fault was noticed, how it ended, what was lost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from vivace.chaos.life import Lived
from vivace.chaos.watching import straggler_of
from vivace.protocol.chaos import Fault, Told
from vivace.protocol.unmeasured import read_unmeasured
from vivace.records.chaos import Chaos, JobLife, Straggler
from vivace.records.privacy import safe_command

__all__ = ["judge"]

Outcome = Literal["survived", "resumed", "ended", "hung", "unnoticed", "restart failed", "not injected"]


def judge(
    command: Sequence[str],
    fault: Fault,
    rank: int,
    step: int,
    lives: Sequence[Lived],
    rotten: str | None,
    folder: Path,
    filled: bool,
    slow_steps: int,
) -> Chaos:
    first = lives[0]
    at = first.lines.fault_at
    report = first.reports.fault()
    noticed = _noticed(first)
    lost, source = _lost(lives) if at is not None else (None, None)
    straggler = None
    if fault is Fault.SLOW and report is not None:
        straggler = straggler_of(first.reports.steps(), range(report.step + 1, report.step + 1 + slow_steps))
    return Chaos(
        command=safe_command(command),
        fault=fault.value,
        rank=rank,
        step=step,
        injected=at is not None,
        injected_step=report.step if report is not None else None,
        target=rotten or first.target,
        outcome=_outcome(fault, lives),
        **noticed,
        ended_s=None if at is None else first.ended_at - at,
        lives=tuple(_life(one) for one in lives),
        steps_lost=lost,
        steps_lost_from=source,
        straggler=None if straggler is None else Straggler(
            rank=straggler[0], late_ms=straggler[1], others_late_ms=straggler[2]
        ),
        notes=tuple(_notes(fault, rank, step, lives, folder, filled, lost)),
        folder=str(folder),
    )  # fmt: skip


def _outcome(fault: Fault, lives: Sequence[Lived]) -> Outcome:
    first, last = lives[0], lives[-1]
    if first.lines.fault_at is None:
        return "not injected"
    if first.exit_code is None:
        return "hung"
    if first.exit_code == 0:
        silent = fault in (Fault.NAN, Fault.SLOW, Fault.DISK_FULL) and first.lines.trouble is None
        return "unnoticed" if silent else "survived"
    if len(lives) == 1:
        return "ended"
    return "resumed" if last.exit_code == 0 else "restart failed"


def _noticed(first: Lived) -> dict[str, object]:
    """Whichever came first: a line of its output, or its end (with an error, or by nobody but us)."""
    at, trouble = first.lines.fault_at, first.lines.trouble
    if at is None:
        return {}
    if trouble is not None:
        return {"detected_by": "a line of its output", "detected_s": trouble.at - at, "detected_line": trouble.text}
    if first.exit_code not in (None, 0):
        return {"detected_by": "its end", "detected_s": first.ended_at - at}
    return {"detected_by": "nobody"}


def _lost(lives: Sequence[Lived]) -> tuple[int | None, Literal["vivace.checkpoint", "the log"] | None]:
    """Steps that were done and had to be done again."""
    first = lives[0]
    fault_at = first.lines.fault_at
    assert fault_at is not None
    resumed = [one for one in first.reports.seen if one.told is Told.RESUMED]
    base = next((one.step for one in resumed if one.at <= fault_at), 0)
    before = {one.pid for one in first.reports.steps() if one.at <= fault_at}
    reached = base + max((one.step for one in first.reports.steps() if one.pid in before), default=0)
    later = [one.step for one in resumed if one.at > fault_at]
    later += [one.step for life in lives[1:] for one in life.reports.seen if one.told is Told.RESUMED]
    if later:
        return reached - later[0], "vivace.checkpoint"
    if len(lives) > 1 and first.lines.last_step is not None and lives[1].lines.first_step is not None:
        return max(0, first.lines.last_step - lives[1].lines.first_step + 1), "the log"
    return None, None


def _life(lived: Lived) -> JobLife:
    told = next((one.step for one in lived.reports.seen if one.told is Told.RESUMED), None)
    said = lived.lines.first_trouble() if lived.lines.fault_at is None else None
    return JobLife(
        exit_code=lived.exit_code,
        seconds=lived.seconds,
        steps=max((one.step for one in lived.reports.steps()), default=0),
        resumed_step=told,
        first_logged_step=lived.lines.first_step,
        last_logged_step=lived.lines.last_step,
        said=None if said is None else said.text,
    )


def _notes(
    fault: Fault, rank: int, step: int, lives: Sequence[Lived], folder: Path, filled: bool, lost: int | None
) -> list[str]:
    first = lives[0]
    notes = []
    if first.lines.fault_at is None:
        notes.append(_why_not(fault, rank, step, first, folder))
    elif fault is Fault.DISK_FULL:
        notes.append(
            "the disk was really full: a file took all its room"
            if filled
            else "a full disk was played: no file of that rank could grow (RLIMIT_FSIZE), so the system said "
            "'File too large' and not 'No space left'; --folder on a small disk fills it for real"
        )
    if first.exit_code is None and first.lines.fault_at is not None:
        notes.append("it went on without a step for too long: vivace ended it (--patience)")
    if lost is None and len(lives) > 1:
        notes.append(
            "how many steps were lost is not known: the job prints no step numbers, and uses no vivace.checkpoint"
        )
    return notes


def _why_not(fault: Fault, rank: int, step: int, first: Lived, folder: Path) -> str:
    kept_out = read_unmeasured(folder / "life-0")
    if kept_out is not None:
        return f"the fault did not come: {kept_out.text}"
    ranks = first.reports.ranks()
    if not ranks:
        return "the fault did not come: no step of a torch optimizer was seen (kill and stop need none: --after 30)"
    if rank not in ranks:
        return f"the fault did not come: there is no rank {rank}, only {', '.join(map(str, ranks))}"
    made = max(one.step for one in first.reports.steps() if one.rank == rank)
    if made < step:
        return f"the fault did not come: rank {rank} made {made} steps, and it was to come after step {step}"
    if fault is Fault.WORKER:
        return f"the fault did not come: rank {rank} has no DataLoader with workers (num_workers)"
    return "the fault did not come: no backward pass followed (torch.autograd.backward), into which NaN could go"
