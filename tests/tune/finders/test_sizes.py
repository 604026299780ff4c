"""Which size comes next, and which is recommended: rules that hold for any memory and any curve."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vivace.records.search import BatchTried
from vivace.tune.finders.sizes import fits, knee, largest, next_size

MARGIN_GIB = 2.0


def ran(size: int, rate: float | None = None, left_gib: float = 10.0, **more: object) -> BatchTried:
    return BatchTried(
        size=size, outcome="ok", samples_per_s=rate if rate is not None else float(size), margin_gib=left_gib, **more
    )  # type: ignore[arg-type]


def out_of_memory(size: int) -> BatchTried:
    return BatchTried(size=size, outcome="out-of-memory")


def searched(run, start: int, values: list[int] | None = None) -> tuple[list[BatchTried], str]:
    """All that a search runs, and why it ends."""
    tried = [run(start)]
    while (wanted := next_size(tried, start, MARGIN_GIB, values)).size is not None:
        assert wanted.size not in {one.size for one in tried}
        tried.append(run(wanted.size))
        assert len(tried) < 60
    return tried, wanted.why


def test_doubling_then_halving_the_gap():
    tried, why = searched(lambda n: ran(n) if n <= 100 else out_of_memory(n), 16)
    assert [one.size for one in tried] == [16, 32, 64, 128, 96, 112, 104]
    assert why == "96 leaves the margin and 104 does not"
    assert largest(tried, MARGIN_GIB) == 96


def test_a_size_that_leaves_too_little_counts_as_too_large():
    tried, _ = searched(lambda n: ran(n, left_gib=50.0 - n), 8)
    assert largest(tried, MARGIN_GIB) == 48  # leaves exactly the margin
    assert [one.size for one in tried] == [8, 16, 32, 64, 48, 56, 52]


def test_the_search_stops_where_the_throughput_falls():
    tried, why = searched(lambda n: ran(n, rate=100.0 if n < 64 else 80.0), 16)
    assert [one.size for one in tried] == [16, 32, 64]
    assert why == "the throughput falls at 64"


def test_a_plateau_is_not_a_fall():
    tried, _ = searched(lambda n: ran(n, rate=100.0) if n <= 64 else out_of_memory(n), 16)
    assert largest(tried, MARGIN_GIB) == 64
    assert knee(tried, MARGIN_GIB) == 16


def test_a_start_that_is_too_large_is_halved():
    tried, _ = searched(lambda n: ran(n) if n <= 5 else out_of_memory(n), 32)
    assert [one.size for one in tried] == [32, 16, 8, 4, 6, 5]
    assert largest(tried, MARGIN_GIB) == 5


def test_nothing_fits():
    tried, why = searched(out_of_memory, 4)
    assert [one.size for one in tried] == [4, 2, 1]
    assert why == "not even a batch of one leaves the margin"
    assert (knee(tried, MARGIN_GIB), largest(tried, MARGIN_GIB)) == (None, None)


def test_a_crash_ends_the_search_with_its_reason():
    crash = BatchTried(size=32, outcome="crash", message="Traceback\nValueError: too many")
    assert "ValueError: too many" in next_size([ran(16), crash], 16, MARGIN_GIB).why


def test_given_values_are_run_and_no_others():
    tried, why = searched(lambda n: ran(n) if n < 50 else out_of_memory(n), 16, [48, 24, 64, 128])
    assert [one.size for one in tried] == [16, 24, 48, 64]
    assert why == "64 ran out of memory: larger ones were not run"


def test_the_knee_is_the_smallest_size_within_five_percent():
    tried = [ran(8, 80.0), ran(16, 94.9), ran(32, 95.0), ran(64, 100.0), ran(128, 200.0, left_gib=1.0)]
    assert knee(tried, MARGIN_GIB) == 32  # 128 is faster, but leaves too little


@given(st.integers(1, 512), st.integers(1, 5000), st.floats(0.0, 1.0))
def test_only_sizes_that_ran_are_returned_and_the_answer_is_close(start: int, most: int, bend: float):
    tried, _ = searched(lambda n: ran(n, rate=1000.0 * n ** (0.1 + bend)) if n <= most else out_of_memory(n), start)
    sizes = {one.size for one in tried if fits(one, MARGIN_GIB)}
    assert sizes
    best = largest(tried, MARGIN_GIB)
    assert best in sizes
    assert knee(tried, MARGIN_GIB) in sizes
    assert best <= most < best + max(1, best // 8) + 1
