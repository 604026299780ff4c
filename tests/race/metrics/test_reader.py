"""Readings of the one metric that is wanted; what is doubtful is an error that shows what was seen."""

from __future__ import annotations

import pytest

from vivace.errors import UserError
from vivace.race.metrics.lines import LONGEST_LINE, LineSplitter
from vivace.race.metrics.reader import MetricReader
from vivace.race.metrics.readings import MetricProblem, Problem
from vivace.race.targets import Wanted


def values_of(reader: MetricReader, *lines: str) -> list[float]:
    readings = [reader.read_line(line, at_s) for at_s, line in enumerate(lines)]
    reader.finish()
    return [reading.value for reading in readings if reading is not None]


def reader_of(wanted: str, **options: object) -> MetricReader:
    return MetricReader(Wanted.parse(wanted), **options)  # type: ignore[arg-type]


def test_the_metric_is_followed_among_others():
    reader = reader_of("val_loss")
    assert values_of(
        reader, "step 0: train loss 4.2, val loss 4.3", "iter 0: loss 4.1", "step 1: train loss 3, val loss 3.1"
    ) == [4.3, 3.1]
    assert reader.last is not None
    assert (reader.last.name, reader.last.step, reader.last.at_s) == ("val loss", 1, 2)  # fmt: skip


def test_a_name_that_may_mean_two_is_an_error_with_both():
    reader = reader_of("accuracy")
    with pytest.raises(MetricProblem) as error:
        values_of(reader, "Acc: 0.5", "Epoch [1/2], Validation Accuracy: 0.25")
    assert error.value.problem is Problem.AMBIGUOUS
    assert '"Acc" = 0.5, once: Acc: 0.5' in error.value.message
    assert '"Validation Accuracy" = 0.25, once: Epoch [1/2], Validation Accuracy: 0.25' in error.value.message


IMAGENET = (
    "Epoch: [0][10/50]\tAcc@1  1.10 ( 1.02)",
    "Test: [10/50]\tAcc@1  2.10 ( 2.02)",
    " *   Acc@1 3.130 Acc@5 9.862",
)


def test_of_the_same_name_on_other_lines_one_can_be_chosen_in_quotes():
    with pytest.raises(MetricProblem, match="may mean 3 metrics"):
        values_of(reader_of("acc1"), *map(str.strip, IMAGENET))
    assert values_of(reader_of('"* Acc@1"'), *map(str.strip, IMAGENET)) == [3.13]
    assert values_of(reader_of("test acc1"), *map(str.strip, IMAGENET)) == [2.02]


def test_a_value_that_is_only_repeated_is_no_second_metric():
    """makemore."""
    lines = (
        "step 500 train loss: 2.1 test loss: 2.2", "test loss 2.2 is the best so far, saving model to out/model.pt",
        "step 1000 train loss: 2.0 test loss: 2.3", "step 1500 train loss: 1.9 test loss: 2.0",
        "test loss 2.0 is the best so far, saving model to out/model.pt",
    )  # fmt: skip
    assert values_of(reader_of("test loss"), *lines) == [2.2, 2.3, 2.0]


def test_a_doubtful_name_ends_a_long_run_before_its_end():
    reader = reader_of("loss")
    assert [reader.read_line(line, at_s) for line, at_s in (("val loss 1", 0.0), ("train loss 1", 5.0))][1] is None
    assert reader.read_line("val loss 2", 14.9) is None
    with pytest.raises(MetricProblem, match="may mean 2"):
        reader.read_line("epoch 3 begins", 15.1)


def test_the_same_name_on_step_lines_and_on_others_is_ambiguous():
    with pytest.raises(MetricProblem, match="on lines with a step"):
        values_of(reader_of("loss"), "Epoch 1 Step 10 loss: 0.5", "loss: 0.3")


def test_a_better_name_that_comes_late_is_not_taken_in_silence():
    with pytest.raises(MetricProblem, match="may mean 2"):
        values_of(reader_of("val_loss"), "val nll loss 3.0", "val loss 2.0")


def test_nan_and_a_unit_that_jumps_are_errors():
    for lines, problem in (
        (("val_acc 0.5", "val_acc nan"), Problem.NOT_A_NUMBER),
        (("val_acc 0.87", "val_acc 87.1"), Problem.UNIT_JUMP),
        (("val_acc 87.1", "val_acc 0.87"), Problem.UNIT_JUMP),
    ):
        with pytest.raises(MetricProblem) as error:
            values_of(reader_of("val_acc"), *lines)
        assert error.value.problem is problem
        assert lines[1] in error.value.message


def test_an_untrained_models_percentages_do_not_jump():
    assert values_of(reader_of("acc1"), "acc1 0.10", "acc1 14.2", "acc1 1.0", "acc1 30.5") == [0.1, 14.2, 1.0, 30.5]


def test_percent_against_a_fraction_as_target_is_an_error():
    with pytest.raises(MetricProblem, match=r"acc1 is 76.1 and the target 0.9") as error:
        values_of(reader_of("acc1", expected=0.9), "acc1 76.1")
    assert error.value.problem is Problem.UNLIKE_TARGET
    assert "90" in (error.value.hint or "")
    assert values_of(reader_of("acc1", expected=0.9), "acc1 76.1%") == [pytest.approx(0.761)]


def test_what_never_came_is_told_with_what_did():
    reader = reader_of("val_loss")
    assert values_of(reader, "loss: 0.5", "Test set: Average loss: 0.4") == []
    problem = reader.never_seen()
    assert problem.problem is Problem.NEVER_SEEN
    assert '"loss" = 0.5' in problem.message
    assert '"Test set: Average loss" = 0.4' in problem.message


def test_a_pattern_is_taken_as_it_is():
    assert values_of(reader_of("x", pattern=r"score>([\d.]+)"), "score>0.5", "score: 3", "score>0.75%") == [0.5, 0.75]
    assert values_of(reader_of("x", pattern=r"(\d+) of (?P<value>\S+)"), "3 of 1e-3") == [1e-3]
    for pattern in ("acc", "(a)(b)", "(["):
        with pytest.raises(UserError, match="--pattern"):
            reader_of("x", pattern=pattern)
    with pytest.raises(UserError, match="takes 'high' for the value"):
        values_of(reader_of("x", pattern="acc: (.*)"), "acc: high")


@pytest.mark.parametrize("piece", [1, 3, 1000])
def test_lines_come_whole_without_colours_however_they_are_cut(piece: int):
    text = "\x1b[32mépoque 1\x1b[0m val loss 1.5\r\nbar  10%\rbar 100%\r\n\nlast".encode()
    splitter, lines = LineSplitter(), []
    for start in range(0, len(text), piece):
        lines += splitter.feed(text[start : start + piece])
    assert [*lines, *splitter.finish()] == ["époque 1 val loss 1.5", "bar  10%", "bar 100%", "last"]


def test_a_line_without_end_takes_bounded_memory():
    splitter = LineSplitter()
    lines = [line for _ in range(100) for line in splitter.feed(b"x" * 100_000)]
    assert [len(line) for line in lines] == [LONGEST_LINE]
    assert splitter.feed(b"\nval loss 2\n") == ["val loss 2"]
