"""``check --ranks``: the command as one process and split, side by side; what is not split and why; what more ranks
would bring. What both runs write goes nowhere."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from vivace.errors import UserError
from vivace.measure.command import Progress, Sink
from vivace.measure.folder import name_of_command, new_run_folder
from vivace.measure.measuring import Measured, Request, measure
from vivace.practices.engine.registry import environment_of
from vivace.protocol.request import Entry
from vivace.records.equality import EqualityVerdict
from vivace.records.measurement import Measurement
from vivace.records.privacy import safe_command
from vivace.records.scale_check import ScaleCheck, Timed
from vivace.scale.launcher import over_ranks, visible_gpus
from vivace.tune.comparison import ratio_of
from vivace.tune.ranks.comparing import compare
from vivace.tune.ranks.memory import memory_by_mode
from vivace.tune.ranks.predicting import predict, site_of
from vivace.tune.ranks.proving import equality_of, why_nothing

__all__ = ["RECORD", "check_ranks"]

RECORD = "scale_check.json"
_MIB = 2**20


def check_ranks(
    request: Request, mode: str, ranks: int, cluster: str | None, sink: Sink, progress: Progress
) -> tuple[ScaleCheck, Path]:
    """Raises ``UserError`` where one of the two does not train, and ``KeyboardInterrupt`` after Ctrl-C."""
    folder = new_run_folder(request.output, request.name or name_of_command(request.command))
    tried, notes = _ranks_to_try(ranks)
    plain = replace(
        request, entry=Entry.PRACTICES, seed_offset=0, grad_norms=True, files_apart=True, repeated=True, profile=False,
        flops=False,
    )  # fmt: skip
    split = _run(
        replace(
            plain, folder=_made(folder / "ranks"), practices=(mode,), environment=environment_of((mode,)),
            launcher=over_ranks(tried),
        ),
        f"the training does not run on {tried} ranks", sink, progress,
    )  # fmt: skip
    one = _run(replace(plain, folder=_made(folder / "one")), "the command does not train", sink, progress)
    if split.scale is None:
        raise UserError("rank 0 left no report of what was split", hint=f"the runs are in {folder}")
    compared = compare(one, split, (mode,))
    verdict, says = EqualityVerdict.EQUAL, compared.says()
    if compared.failed is not None:
        verdict, says = EqualityVerdict.DIFFERENT, compared.failed
    elif compared.not_compared is not None:
        verdict, says = EqualityVerdict.NOT_COMPARED, compared.not_compared
    memory, assumed = memory_by_mode(one, ranks)
    site, why_not = site_of(one, cluster)
    speedup = ratio_of(one, split)
    record = ScaleCheck(
        command=safe_command(request.command),
        mode=mode,
        ranks=ranks,
        one=_timed(one, 1),
        split=_timed(split, tried),
        speedup=speedup,
        efficiency=speedup / tried,
        facts=split.scale,
        equality=equality_of(request.command, mode, (), tried, verdict, says, compared, 0.0),
        memory=memory,
        prediction=predict(one, site, ranks, mode, split.scale.gradient_mib * _MIB) if site is not None else None,
        why_not_predicted=why_not,
        machine=one.machine,
        notes=(*notes, *assumed, *_unsteady(one, split)),
    )
    record.save(folder / RECORD)
    return record, folder


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _ranks_to_try(ranks: int) -> tuple[int, tuple[str, ...]]:
    """As many as there are GPUs; without two of them, two processes are enough to see what is split."""
    gpus = len(visible_gpus())
    if gpus >= 2:
        tried = min(ranks, gpus)
        return tried, () if tried == ranks else (f"split over {tried} ranks, as many as there are GPUs here",)
    tried = min(ranks, 2)
    if gpus == 1:
        return tried, ("both ranks share the one GPU: what was split is real, their speed says nothing",)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    small = (f"split over {tried} ranks here: more are predicted, not run",) if tried < ranks else ()
    return tried, (*small, f"the ranks share {cores} cores, and so does one process")


def _run(request: Request, what: str, sink: Sink, progress: Progress) -> Measurement:
    measured: Measured = measure(request, sink, progress)
    if measured.outcome.interrupted:
        raise KeyboardInterrupt
    record = measured.measurement
    if record is None or record.step_ms is None:
        raise UserError(f"{what}: {why_nothing(measured)}", hint=f"its output is in {measured.folder}")
    return record


def _unsteady(*runs: Measurement) -> tuple[str, ...]:
    if all(m.steps_vary is None for m in runs):
        return ()
    return (
        "steps of a run differ so much that one run each says little about speed; `vivace tune --ranks` runs pairs",
    )


def _timed(m: Measurement, ranks: int) -> Timed:
    assert m.step_ms is not None
    communication = m.phases_ms.get("communication")
    devices = [rank.memory.allocated_peak_gib for rank in m.ranks if rank.memory is not None]
    hosts = [rank.host_peak_gib for rank in m.ranks if rank.host_peak_gib is not None]
    alone = m.memory.host.rss_peak_gib if m.memory.host is not None else None
    return Timed(
        ranks=ranks,
        samples_per_s=m.samples_per_s,
        step_ms=m.step_ms.mean,
        phases_ms={phase: spread.mean for phase, spread in m.phases_ms.items()},
        exposed_communication_ms=communication.mean if communication is not None and ranks > 1 else None,
        waiting_ms=m.waiting_for_ranks_ms,
        host_memory_gib=max(hosts, default=alone),
        device_memory_gib=max(
            devices, default=m.memory.device.allocated_peak_gib if m.memory.device is not None else None
        ),
    )
