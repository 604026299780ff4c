"""From the payloads of all ranks to one ``Measurement``. Reads the run's folder, computes, writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vivace import __version__
from vivace.hardware.catalogue import find_gpu
from vivace.hardware.specs import peak_tflops
from vivace.measure.all_ranks import host_series, mean_series, waiting_for_ranks_ms
from vivace.measure.contradictions import contradictions
from vivace.measure.exchanges import exchanges
from vivace.measure.histograms import histograms
from vivace.measure.inside.steps.timeline import PHASES
from vivace.measure.ledger.gpu import gpu_ledger
from vivace.measure.ledger.making import host_ledger
from vivace.measure.ledger.scaling import Timed
from vivace.measure.one_offs import without_one_offs
from vivace.measure.ranks import missing_ranks, name_ranks, world_of
from vivace.measure.statistics import spread
from vivace.measure.steadiness import steps_vary
from vivace.measure.trends import over_time
from vivace.protocol.answers import PracticeAnswer
from vivace.protocol.ending import Ending
from vivace.protocol.payload import Clock, Payload, Series, Status
from vivace.records.first_steps import FirstSteps
from vivace.records.ledger import Ledger
from vivace.records.machine import Machine
from vivace.records.measurement import (
    AllocatorUse,
    DeviceMemory,
    Energy,
    Flops,
    HostMemory,
    Inputs,
    Loader,
    Measurement,
    Memory,
    Mfu,
    Origin,
    Profile,
    Rank,
    Spread,
    Sync,
    Validation,
    inputs_vary,
)  # fmt: skip
from vivace.records.privacy import safe_command, safe_environment, safe_text
from vivace.records.structure import Structure

__all__ = ["merge"]

_SHORT_ENERGY_WINDOW_S = 1.0
_LENT_SHARE = 0.1  # of a window's batches: so many from the queue, and its speed is not the lasting one …
_SAME_FORWARDS = 0.02
_LENT_MIN = 3  # … batches: one or two more or less are chance, which matters in short windows


def merge(
    payloads: Sequence[Payload],
    machine: Machine,
    command: Sequence[str],
    environment: dict[str, str],
    folder: str,
    started_at: str,
    notes: Sequence[str] = (),
    practices: dict[str, PracticeAnswer] | None = None,
) -> Measurement:
    payloads, left_out = without_one_offs(payloads)
    first = payloads[0]
    series, on_host = mean_series(payloads), host_series(payloads)
    steps = len(series.step)
    # The rank that failed first is the cause; the others only lost their peer.
    partial = sorted((p for p in payloads if p.status is not Status.COMPLETE), key=lambda p: p.written_at)
    flops = _flops(first)
    profile = Profile(**first.profile) if first.profile else None
    contradicted = contradictions(flops, profile, _step_s(first), _peaks(first, flops))
    mfu = _mfu(first, flops) if not contradicted else None
    missing, world = missing_ranks(payloads), world_of(payloads)
    counted = payloads[:1] if first.split else payloads  # each rank of a split training sees the whole batch
    samples_per_s = _sum([_rate(p, p.samples) for p in counted])
    whole_samples_per_s = None if missing else samples_per_s
    return Measurement(
        status="partial" if partial or missing else "complete",
        reason=_reason(partial, missing, world),
        ending=_ending(partial, missing),
        missing_ranks=missing,
        steps=steps,
        warmup_steps=first.warmup_steps,
        split=first.split,
        samples_per_s=whole_samples_per_s,
        tokens_per_s=None if missing else _sum([_rate(p, p.tokens) for p in counted]),
        batch_size=_batch_size(first),
        global_batch_size=None if missing else _sum([_batch_size(p) for p in counted]),
        micro_batches=first.micro_batches,
        optimizers=first.optimizers,
        skipped_steps=first.skipped_steps,
        step_ms=spread(series.step) if steps else None,
        steps_vary=steps_vary(series.step, series.phases),
        phases_ms=_phases(series),
        host_phases_ms=_phases(on_host) if on_host else {},
        clock=first.clock,
        series_ms={"step": tuple(series.step), **{n: tuple(v) for n, v in series.phases.items()}},
        losses=_mean_losses(payloads),
        trajectory=_mean_columns([p.trajectory for p in payloads]),
        gradient_norms={int(step): norm for step, norm in first.gradient_norms.items()},
        first_steps=FirstSteps(**first.first_steps) if first.first_steps else None,
        backwards=tuple(first.backwards),
        before_window_s=first.before_window_s,
        input_shapes=first.input_shapes,
        inputs=Inputs(**first.inputs),
        recompiled=first.recompiled,
        gradient_syncs=first.gradient_syncs,
        imbalance_ms=_imbalance_ms(payloads),
        waiting_for_ranks_ms=waiting_for_ranks_ms(payloads),
        exchanges=exchanges(payloads, series),
        input_imbalance=_input_imbalance(payloads),
        structure=Structure(**first.structure),
        practices=practices or {},
        parameters=first.parameters.total,
        trainable_parameters=first.parameters.trainable,
        flops=flops,
        contradictions=contradicted,
        mfu=mfu.value if mfu else None,
        mfu_detail=mfu,
        memory=_memory(payloads),
        allocator=AllocatorUse(**first.allocator) if first.allocator else None,
        energy=_energy(payloads, whole_samples_per_s),
        validation=Validation(
            total_ms=first.validation.total_ms,
            batches=first.validation.batches,
            runs=first.validation.runs,
            with_grad_ms=first.validation.with_grad_ms,
        ),
        profile=profile,
        histograms=histograms(first.histograms) if first.histograms else None,
        syncs=tuple(Sync(**sync) for sync in first.syncs),
        loaders=tuple(Loader(**loader) for loader in first.loaders),
        ready_at_start=first.supply.ready_at_start,
        ready_at_end=first.supply.ready_at_end,
        workers_busy=first.supply.workers_busy,
        ranks=tuple(_rank(p) for p in payloads if p.series.step),
        over_time=over_time(series.step, first.host_memory_series, first.gpu_memory_series, first.compiling),
        ledger=_ledger(payloads, series, profile, flops if not contradicted else None),
        devices=tuple(device.name for p in payloads for device in p.devices),
        origin=_origin(first, command, environment, folder, started_at),
        machine=machine,
        notes=(
            *notes,
            *left_out,
            *first.notes,
            *_why_no_throughput(missing, payloads, samples_per_s),
            *_why_not(first),
            *_other_vivace(first),
        ),
    )


def _reason(partial: Sequence[Payload], missing: Sequence[int], world: int) -> str | None:
    reasons = []
    if partial:
        told = safe_text(partial[0].ended.text if partial[0].ended else "")
        reasons.append(f"rank {partial[0].rank}: {told}" if world > 1 else told)
    if missing:
        reasons.append(f"{name_ranks(missing)} of {world} did not report")
    return "; ".join(reasons) if reasons else None


def _ending(partial: Sequence[Payload], missing: Sequence[int]) -> Ending | None:
    if partial and partial[0].ended:
        return partial[0].ended.kind
    return Ending.RANKS_MISSING if missing else None


def _why_no_throughput(
    missing: Sequence[int], payloads: Sequence[Payload], samples_per_s: float | None
) -> tuple[str, ...]:
    """What some ranks do must not be taken for what the job does."""
    if not missing:
        return ()
    there = name_ranks([payload.rank for payload in payloads])
    rate = f"; {there} alone: {samples_per_s:,.1f} samples/s" if samples_per_s is not None else ""
    return (f"no throughput of the whole job, and energy and memory are those of {there} only{rate}",)


def _ledger(payloads: Sequence[Payload], series: Series, profile: Profile | None, flops: Flops | None) -> Ledger | None:
    """Of the first rank's lines, and the mean step of all."""
    first = payloads[0]
    if not series.step:
        return None
    phases = {phase: sum(values) / len(values) for phase, values in series.phases.items() if values}
    step_ms = sum(series.step) / len(series.step)
    timed = Timed(step_ms, phases, first.no_core_ms, waiting_for_ranks_ms(payloads))
    if first.clock is Clock.GPU:
        if first.sampling is None or profile is None:
            return None
        return gpu_ledger(timed, profile, _limit_ms(first, flops), first.sampling)
    return host_ledger(timed, first.sampling) if first.sampling is not None else None


def _limit_ms(payload: Payload, flops: Flops | None) -> float | None:
    """What the counted products take at the dense peak of the arithmetic that they ran in."""
    peaks = _peaks(payload, flops)
    if flops is None or not peaks or not all(peaks.get(kind) for kind in flops.by_type):
        return None
    return sum(count / (peaks[kind] or 1.0) / 1e9 for kind, count in flops.by_type.items())


def _flops(payload: Payload) -> Flops | None:
    seen = payload.flops
    if seen is None or not _counted(payload):
        return None
    return Flops(
        model=seen.model,
        hardware=seen.hardware,
        by_type=seen.by_type,
        recurrent=seen.recurrent,
        uncounted=tuple(seen.uncounted),
    )


def _counted(payload: Payload) -> bool:
    return payload.flops is not None and payload.flops.model > 0


def _varies(payload: Payload) -> bool:
    """One step's FLOPs do not stand for the others where inputs differ in size, or steps in how many forwards."""
    counted, usual = payload.flops.forwards if payload.flops else 0, payload.forwards_per_step
    other_number = bool(counted and usual and abs(usual / counted - 1) > _SAME_FORWARDS)
    return inputs_vary(payload.input_shapes) or other_number


def _other_vivace(payload: Payload) -> list[str]:
    used = payload.process.vivace
    return (
        [f"the process has its own vivace, {used}; this one is {__version__}"] if used not in ("", __version__) else []
    )


def _why_not(payload: Payload) -> list[str]:
    return [*_why_no_flops(payload), *_why_no_losses(payload), *_why_not_lasting(payload)]


def _why_no_flops(payload: Payload) -> list[str]:
    if _counted(payload) and _varies(payload):
        return [
            "no MFU: FLOPs were counted in one step, and others differ in their inputs or in the number of forwards"
        ]
    if payload.flops and payload.flops.uncounted:
        return [f"FLOPs leave out: {', '.join(payload.flops.uncounted)}"]
    return []


def _why_no_losses(payload: Payload) -> list[str]:
    if payload.losses and all(loss is None for loss in payload.losses):
        return ["no losses: no backward started from a scalar (functional gradients?)"]
    return []


def _why_not_lasting(payload: Payload) -> list[str]:
    """A queue that falls lends its batches to the window: only what the workers made in it goes on for ever."""
    start, end, used = payload.supply.ready_at_start, payload.supply.ready_at_end, payload.supply.used
    if used and start is not None and end is not None:
        lent = min(start - end, used)
        if lent >= _LENT_MIN and lent > _LENT_SHARE * used:
            return [
                f"the loader falls behind: {start} batches were ready when the window opened, {end} at its end; "
                + (
                    f"a long run is about {100 * lent / used:.0f} % slower"
                    if lent < used
                    else "none arrived in between"
                )
            ]
    if payload.supply.warmup_cut_short:
        return [
            "the loader falls behind: its queue had not run empty when the warm-up was cut short; "
            "the lasting speed may be lower"
        ]
    return []


def _phases(series: Series) -> dict[str, Spread]:
    return {phase: spread(series.phases[phase]) for phase in PHASES if series.phases.get(phase)}


def _rate(payload: Payload, counts: Sequence[int]) -> float | None:
    """Per second: all of it over all the time, so that rare long steps count."""
    total_ms = sum(payload.series.step)
    return sum(counts) / (total_ms / 1e3) if counts and total_ms > 0 else None


def _batch_size(payload: Payload) -> int | None:
    """The usual number of samples per step: the most frequent one (the last batch of an epoch is smaller)."""
    samples = [n for n in payload.samples if n]
    return max(set(samples), key=lambda n: (samples.count(n), n)) if samples else None


def _sum(values: Sequence[Any]) -> Any:
    present = [value for value in values if value is not None]
    return sum(present) if present else None


def _imbalance_ms(payloads: Sequence[Payload]) -> float | None:
    """How much longer the slowest rank computes than the ranks do on average, per step: time the others wait."""
    if len(payloads) < 2:
        return None
    phases = [p.series.phases for p in payloads]
    per_rank = [[sum(parts) for parts in zip(p["forward"], p["backward"], strict=True)] for p in phases]
    excess = [max(column) - sum(column) / len(column) for column in zip(*per_rank, strict=False)]
    return sum(excess) / len(excess) if excess else None


def _input_imbalance(payloads: Sequence[Payload]) -> float | None:
    """How much more the rank with the largest inputs gets than the ranks on average: a share, mean over the steps."""
    if payloads[0].split:
        return None
    columns = [c for c in zip(*(p.input_elements for p in payloads), strict=False) if sum(c)]
    if len(payloads) < 2 or not columns:
        return None
    return sum(max(column) * len(column) / sum(column) - 1 for column in columns) / len(columns)


def _mean_losses(payloads: Sequence[Payload]) -> tuple[float | None, ...]:
    return _mean_columns([p.losses for p in payloads])


def _mean_columns(rows: Sequence[Sequence[float | None]]) -> tuple[float | None, ...]:
    columns: list[tuple[Any, ...]] = list(zip(*rows, strict=False))
    return tuple(sum(column) / len(column) if None not in column else None for column in columns)


def _mfu(payload: Payload, flops: Flops | None) -> Mfu | None:
    if flops is None or not payload.series.step or _varies(payload):
        return None
    arithmetic = max(flops.by_type, key=flops.by_type.__getitem__)
    step_s = _step_s(payload)
    assert step_s is not None
    names = [device.name for device in payload.devices]
    spec = find_gpu(names[0]) if names else None
    peak = peak_tflops(spec, arithmetic) if spec is not None else None
    if spec is not None and peak is not None:
        against = f"{spec.name} dense {arithmetic} peak (catalogue)"
        peak *= len(names)
    elif payload.ceiling and payload.ceiling.tflops:
        peak, against = payload.ceiling.tflops, f"{arithmetic} matmul measured on this device"
    else:
        return None
    achieved = flops.model / step_s / 1e12
    return Mfu(
        value=achieved / peak,
        hfu=flops.hardware / step_s / 1e12 / peak,
        peak_tflops=peak,
        arithmetic=arithmetic,
        against=against,
    )


def _step_s(payload: Payload) -> float | None:
    steps_ms = payload.series.step
    return sum(steps_ms) / len(steps_ms) / 1e3 if steps_ms else None


def _peaks(payload: Payload, flops: Flops | None) -> dict[str, float | None]:
    """Of all devices of one rank, by the arithmetic that was counted. None where steps differ in what they compute."""
    names = [device.name for device in payload.devices]
    if flops is None or not names or _varies(payload):
        return {}
    spec = find_gpu(names[0])
    if spec is None:
        return {}
    peaks = {kind: peak_tflops(spec, kind) for kind in flops.by_type}
    return {kind: None if peak is None else len(names) * peak for kind, peak in peaks.items()}


def _memory(payloads: Sequence[Payload]) -> Memory:
    devices = [DeviceMemory(**d) for p in payloads if p.memory for d in p.memory.devices]
    hosts = [HostMemory(**p.memory.host) for p in payloads if p.memory and p.memory.host]
    return Memory(
        device=max(devices, key=lambda d: d.reserved_peak_gib, default=None),
        host=HostMemory(
            rss_gib=sum(h.rss_gib for h in hosts),
            rss_peak_gib=sum(h.rss_peak_gib for h in hosts),
            children_rss_gib=sum(h.children_rss_gib for h in hosts),
            children=sum(h.children for h in hosts),
        )
        if hosts
        else None,
    )


def _energy(payloads: Sequence[Payload], samples_per_s: float | None) -> Energy:
    """Average power times time: the counter's window and the timed one need not be the same steps."""
    measured = {tuple(d.uuid for d in p.devices): p.energy for p in payloads if p.energy}
    if not measured:
        why = next((p.energy_why_not for p in payloads if p.energy_why_not), None)
        return Energy(measured=False, how=f"not measured: {why or 'the run ended before the window closed'}")
    results = list(measured.values())  # ranks that share a GPU must not count it twice
    average_w = sum(r.average_w for r in results)
    step_ms = payloads[0].series.step
    window_s = min(r.window_s for r in results)
    how = f"{results[0].method} of {sum(map(len, measured))} GPU(s) over {window_s:.1f} s; host not included"
    if window_s < _SHORT_ENERGY_WINDOW_S:
        how += "; the window is short, expect an error of 10 % or more"
    peaks = [r.peak_w for r in results]
    return Energy(
        measured=True,
        how=how,
        joules_per_step=average_w * sum(step_ms) / len(step_ms) / 1e3,
        joules_per_sample=average_w / samples_per_s if samples_per_s else None,
        average_w=average_w,
        peak_w=sum(peaks) if None not in peaks else None,
        window_s=window_s,
        gpus=sum(map(len, measured)),
    )


def _rank(payload: Payload) -> Rank:
    memory = [DeviceMemory(**d) for d in payload.memory.devices] if payload.memory else []
    rate, host = _rate(payload, payload.samples), payload.memory.host if payload.memory else {}
    return Rank(
        rank=payload.rank,
        host=payload.process.host,
        device=payload.device,
        cores=payload.process.cores,
        step_ms=spread(payload.series.step),
        phases_ms=_phases(payload.series),
        samples_per_s=rate / payload.world if rate is not None and payload.split else rate,
        memory=max(memory, key=lambda d: d.reserved_peak_gib, default=None),
        host_peak_gib=host.get("rss_peak_gib"),
    )


def _origin(
    payload: Payload, command: Sequence[str], environment: dict[str, str], folder: str, started_at: str
) -> Origin:
    process = payload.process
    return Origin(
        command=safe_command(command),
        folder=folder,
        script=process.script,
        code_sha256=process.code_sha256,
        seed=process.seed,
        environment=safe_environment(environment),
        vivace=__version__,
        python=process.python,
        torch=process.torch,
        cuda=process.cuda,
        cudnn=process.cudnn,
        flags=process.flags,
        started_at=started_at,
    )
