"""Which printed names a wanted one may mean."""

from __future__ import annotations

import pytest

from vivace.race.metrics.names import MetricName, choose


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("val_loss", "Validation Loss"), ("val_loss", "valid/loss"), ("valLoss", "eval_loss"), ("acc", "Accuracy"),
        ("acc1", "Acc@1"), ("top-1 accuracy", "acc1"), ("Prec@5", "top5"), ("test accuracy", "Test set: Accuracy"),
        ("val ppl", "validation perplexity"), ("loss", "Average loss"),
    ],
)  # fmt: skip
def test_other_words_for_the_same(one: str, other: str):
    assert MetricName.of(one) == MetricName.of(other)


@pytest.mark.parametrize(
    ("wanted", "seen", "chosen"),
    [
        ("val_loss", ["train loss", "val loss"], ["val loss"]),
        ("accuracy", ["Acc", "Validation Accuracy"], ["Acc", "Validation Accuracy"]),  # never the first one in silence
        ("loss", ["train loss", "val loss"], ["train loss", "val loss"]),
        ("val_loss", ["val loss", "val nll loss"], ["val loss"]),
        ("val_acc", ["val acc", "best val acc"], ["val acc"]),
        ("val_acc", ["best val acc", "ema val acc"], ["best val acc", "ema val acc"]),
        ("acc1", ["Acc@1", "Acc@5"], ["Acc@1"]),
        ("acc5", ["Acc@1", "Acc@5"], ["Acc@5"]),
        ("val_loss", ["Test: loss"], []),
        ("accuracy", ["Test: Accuracy"], ["Test: Accuracy"]),
    ],
)
def test_choose(wanted: str, seen: list[str], chosen: list[str]):
    names = [MetricName.of(text) for text in seen]
    assert choose(MetricName.of(wanted), names) == [MetricName.of(text) for text in chosen]
