"""MLPerf's tables: the minutes that their figures come to, and the corrections of what cannot be."""

from __future__ import annotations

import pytest

from vivace.recipes.published import Verdict, check_table, find_table, published_tables


def checked(name: str, gpus: int):
    table = find_table(name)
    assert table is not None
    return next(row for row in check_table(table) if row.gpus == gpus)


def test_there_are_ten_tables():
    names = [table.name for table in published_tables()]
    assert len(names) == len(set(names)) == 10
    assert {table.version for table in published_tables()} == {"2.0"}


@pytest.mark.parametrize(
    ("name", "gpus", "minutes", "published"),
    [
        ("mlperf-resnet50", 4, 53.77, 54.956),
        ("mlperf-resnet50", 8, 29.07, 29.374),
        ("mlperf-resnet50", 64, 4.71, 4.587),
        ("mlperf-unet3d", 72, 3.40, 3.437),
        ("mlperf-rnnt", 8, 30.70, 33.546),
        ("mlperf-cosmoflow", 128, 19.31, None),
        ("mlperf-maskrcnn", 8, 42.75, 44.165),
        ("mlperf-dlrm", 8, 1.89, 1.849),
    ],
)
def test_minutes_from_epochs_samples_and_throughput(name: str, gpus: int, minutes: float, published: float | None):
    row = checked(name, gpus)
    assert row.minutes == pytest.approx(minutes, abs=0.006)
    assert row.published_min == published
    assert row.verdict is (Verdict.NO_RESULT if published is None else Verdict.AGREES)


@pytest.mark.parametrize(
    ("name", "gpus", "printed"),
    [("mlperf-resnet50", 4216, 0.048), ("mlperf-maskrcnn", 8, 14.58), ("mlperf-dlrm", 8, 36.04)],
)
def test_what_was_printed_would_not_fit(name: str, gpus: int, printed: float):
    row = checked(name, gpus)
    assert row.printed_minutes == pytest.approx(printed, rel=0.01)
    assert row.minutes is not None
    assert max(row.minutes, printed) > 2 * min(row.minutes, printed)
    assert row.why


@pytest.mark.parametrize(
    ("name", "per_gpu"),
    [("mlperf-resnet50", [408, 408, 51, 35, 16]), ("mlperf-bert", [56, 48, 4, 4]), ("mlperf-unet3d", [7, 1, 0.109])],
)
def test_batches_per_gpu(name: str, per_gpu: list[float]):
    table = find_table(name)
    assert table is not None
    assert [row.batch_per_gpu for row in table.rows if row.gpus] == pytest.approx(per_gpu, abs=0.5e-3)


def test_the_throughput_that_a_published_time_needs():
    assert checked("mlperf-bert", 8).implied_per_s == pytest.approx(2.8e6 / 19.213 / 60)
    assert checked("mlperf-ssd", 8).implied_per_s == pytest.approx(4 * 1_170_301 / 87.093 / 60)
