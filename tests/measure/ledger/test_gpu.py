"""The ledger of a GPU job, on traces and profiles written by hand: who is charged for a gap, and that rows add up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.measure.inside.lines.charging import charge
from vivace.measure.inside.lines.samples import Sample, Stack
from vivace.measure.inside.profiling.host_gaps import DEVICE, HOST_LATE, Gap, host_gaps
from vivace.measure.ledger.gpu import gpu_ledger
from vivace.measure.ledger.scaling import Timed
from vivace.protocol.sampling import SeenLine, SeenSampling
from vivace.records.ledger import Cause
from vivace.records.measurement import Copies, Profile


def kernel(start: float, stop: float, correlation: int) -> dict:
    args = {"correlation": correlation}
    return {"ph": "X", "cat": "kernel", "name": "gemm", "ts": start, "dur": stop - start, "args": args}


def launch(start: float, correlation: int, us: float = 5.0) -> dict:
    args = {"correlation": correlation}
    return {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": start, "dur": us, "args": args}


def test_a_gap_is_the_hosts_until_it_has_launched_what_ends_it():
    """The first kernel ends at 100 µs; the next is launched from 395 to 400 and starts at 410."""
    events = [launch(0, 1), kernel(10, 100, 1), launch(395, 2), kernel(410, 500, 2)]
    assert host_gaps(events) == [Gap(100, 400, HOST_LATE), Gap(400, 410, DEVICE)]


def test_a_host_that_runs_ahead_is_charged_for_nothing():
    """A saturated loop: everything was launched long before the kernel before it ended."""
    events = [one for n in range(50) for one in (launch(6.0 * n, n), kernel(100.0 * n, 100.0 * n + 98, n))]
    assert {gap.whose for gap in host_gaps(events)} == {DEVICE}
    assert host_gaps([launch(0, 1), kernel(0, 100, 1), launch(5, 2), kernel(100, 200, 2)]) == []


def test_the_line_that_the_host_was_in_gets_the_gap():
    first, second = (compile(f"{name}()", f"{name}.py", "exec") for name in ("log", "train"))
    samples = [
        Sample(at, at + 1, 0, 0, 0, Stack(code, 0, None, code, 0, code))
        for at, code in ((50_000, second), (150_000, first), (300_000, first), (420_000, second))
    ]
    gaps = [(100_000, 400_000, HOST_LATE), (400_000, 410_000, DEVICE)]
    charges = charge(samples, [], 0, 100_000, [(0, 10**6, "other")], gaps)
    by_code = {stack.code: one.by_work for (stack, _), one in charges.lines.items()}
    assert by_code[first] == {HOST_LATE: 200_000 - 1}
    assert by_code[second] == {HOST_LATE: 100_000 - 1, DEVICE: 10_000}


PROFILE = Profile(
    steps=3, busy_share=0.5, idle_ms_per_step=60.0, roles_ms={"matmul": 40.0, "elementwise": 15.0},
    copies=(Copies(kind="Memcpy HtoD", per_step=1, ms_per_step=5.0, mib_per_step=1),),
    idle_during_ms={"loader": 20.0, "forward": 10.0, "other": 30.0},
)  # fmt: skip


def test_kernels_at_their_limit_and_beyond_it_and_the_lines_that_the_gpu_waits_for():
    """Of 100 ms the GPU is busy 60. The products take 40, and would take 24 at the peak."""
    idle = [
        SeenLine(file="train.py", line=61, phase="other", via="json.dumps", work=HOST_LATE, ms=30.0),
        SeenLine(file="train.py", line=40, phase="forward", leaf_in_torch=True, work=HOST_LATE, ms=15.0),
        SeenLine(file="train.py", line=30, phase="loader", work=HOST_LATE, ms=10.0),
        SeenLine(file="train.py", line=40, phase="forward", leaf_in_torch=True, work=DEVICE, ms=5.0),
    ]  # fmt: skip
    ledger = gpu_ledger(Timed(100.0), PROFILE, 24.0, SeenSampling(steps=3, idle=idle))
    assert ledger is not None
    assert {(row.cause, row.where.line if row.where else 0): pytest.approx(row.ms) for row in ledger.rows} == {
        (Cause.LIMIT, 0): 24.0, (Cause.BEYOND, 0): 16.0, (Cause.KERNELS, 0): 15.0, (Cause.COPIES, 0): 5.0,
        (Cause.HOST, 61): 20.0, (Cause.DISPATCH, 0): 10.0, (Cause.DATA, 30): 20.0 / 3, (Cause.LATENCY, 0): 10.0 / 3,
    }  # fmt: skip
    assert ledger.unexplained_ms == pytest.approx(0.0, abs=1e-9)


def test_without_samples_the_parts_of_the_step_tell():
    ledger = gpu_ledger(Timed(100.0), PROFILE, None, None)
    assert ledger is not None
    assert {row.cause: pytest.approx(row.ms) for row in ledger.rows if row.cause is not Cause.KERNELS} == {
        Cause.DATA: 40 / 3, Cause.DISPATCH: 20 / 3, Cause.HOST: 20.0, Cause.COPIES: 5.0,
    }  # fmt: skip


ms = st.integers(1, 100_000).map(lambda us: us / 1000)


@given(
    ms, st.floats(0.01, 1.0), ms, st.dictionaries(st.sampled_from(["matmul", "norm", "other"]), ms, min_size=1),
    st.none() | ms, st.lists(ms, max_size=4),
)  # fmt: skip
def test_rows_add_up_to_the_step(step_ms, share, idle_ms, roles, limit, lines):
    profile = Profile(steps=3, busy_share=share, idle_ms_per_step=idle_ms, roles_ms=roles)
    idle = [SeenLine(file="train.py", line=n, phase="other", work=HOST_LATE, ms=one) for n, one in enumerate(lines)]
    ledger = gpu_ledger(Timed(step_ms), profile, limit, SeenSampling(steps=3, idle=idle))
    assert ledger is not None
    assert sum(row.ms for row in ledger.rows) + ledger.unexplained_ms == pytest.approx(step_ms, rel=0.02)
