"""The table reader and the grades: rows used, rows skipped with the reason, errors, files of other kinds."""

from __future__ import annotations

import contextlib
import csv
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vivace.errors import UserError
from vivace.plan.grading.language_rows import Skip, question_from_row, with_file_context
from vivace.plan.grading.measured import measured_memory, measured_seconds
from vivace.plan.grading.score import mean_absolute_percentage_error, quantile, spearman
from vivace.plan.grading.tables import read_table
from vivace.plan.grading.validate import grade_file, grade_row
from vivace.plan.grading.vision_rows import question_from_vision_row

DATA = Path(__file__).parents[1] / "data"


@pytest.fixture(scope="module")
def grade():
    return grade_file(DATA / "excerpt_language.csv")


def test_rows_used_and_skipped(grade):
    used = {row.row_id for row in grade.grades if row.used}
    assert used == {"1", "2", "3", "4", "5", "6"}
    assert grade.rows_used == 6
    reasons = {row.row_id: row.skipped for row in grade.grades if row.skipped}
    assert reasons["7"] == "hidden is blank"
    assert "mixture of experts" in reasons["8"]
    assert "TPU v4" in reasons["9"]
    assert sum(grade.skipped.values()) == 3


def test_published_rows_are_predicted_within_the_aim(grade):
    errors = {row.row_id: row.time_error_pct for row in grade.grades if row.row_id in "123"}
    assert all(abs(error) < 10 for error in errors.values()), errors


def test_memory_and_out_of_memory(grade):
    third = next(row for row in grade.grades if row.row_id == "3")
    assert third.measured_gib == 9
    assert third.predicted_gib == pytest.approx(9, rel=0.15)
    assert (grade.oom_right, grade.oom_wrong) == (1, 0)


def test_a_file_is_unseen_unless_it_is_named_as_fitted(grade):
    assert not grade.fitted


def test_rules_for_blank_cells_are_listed(grade):
    sixth = next(row for row in grade.grades if row.row_id == "6")
    notes = " ".join(sixth.notes)
    assert "micro_batch blank" in notes
    assert "act_ckpt blank" in notes
    assert "gpus_per_node blank: 8" in notes


def rows() -> dict[str, dict[str, str]]:
    table = read_table(DATA / "excerpt_language.csv")
    return {row["row_id"]: row for row in with_file_context(table.rows, table.comments)}


def test_tokens_per_second_become_seconds():
    row = rows()["2"]
    seconds, column = measured_seconds(row, question_from_row(row).job)
    assert (seconds, column) == (pytest.approx(96 * 2048 / 37130), "tokens_s")


def test_hardware_tflops_become_seconds():
    """BLOOM: 149.02 TFLOP/s by equation 3 of Narayanan 2021 is 105.22 s."""
    row = {
        **rows()["1"],
        "model": "BLOOM 176B",
        "layers": "70",
        "hidden": "14336",
        "heads": "112",
        "ffn": "57344",
        "vocab": "250880",
        "n_gpus": "384",
        "tp": "4",
        "pp": "12",
        "dp": "8",
        "micro_batch": "2",
        "global_batch": "2048",
        "step_time_s": "",
        "tflops_gpu": "149.02",
        "tflops_def": "hardware (4*2 coefficient)",
    }
    seconds, column = measured_seconds(row, question_from_row(row).job)
    assert column == "tflops_gpu"
    assert seconds == pytest.approx(105.22, rel=0.002)


def test_memory_units():
    assert measured_memory({"mem_gpu": "60", "mem_def": "GB on each GPU"}).gib == pytest.approx(60e9 / 2**30)
    assert measured_memory({"mem_gpu": "60", "mem_def": "GiB peak reserved"}).kind == "reserved"
    assert measured_memory({"mem_gpu": "40960 MiB", "mem_def": ""}).gib == 40
    assert measured_memory({"mem_gpu": "25.5 GiB active", "mem_def": ""}).kind == "allocated"
    assert measured_memory({"mem_gpu": "", "mem_def": "GB"}) is None


def test_vision_tables():
    grade = grade_file(DATA / "excerpt_vision.csv")
    assert {row.row_id for row in grade.grades if row.used} == {"1", "2", "3"}
    assert grade.step_time_mape < 15
    reasons = {row.row_id: row.skipped for row in grade.grades if row.skipped}
    assert reasons["4"] == "batch_per_gpu is blank"
    assert "nonesuch-net" in reasons["5"]


def test_a_table_of_another_kind_is_skipped_with_the_reason(tmp_path):
    path = tmp_path / "other.csv"
    path.write_text("# a comment\nrow_id,colour\n1,red\n")
    grade = grade_file(path)
    assert (grade.rows, grade.rows_used) == (1, 0)
    assert "columns of another kind" in next(iter(grade.skipped))


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(UserError, match="does not exist"):
        read_table(tmp_path / "absent.csv")
    (tmp_path / "empty.csv").write_text("# only a comment\n")
    with pytest.raises(UserError, match="no rows"):
        read_table(tmp_path / "empty.csv")


@pytest.mark.parametrize("blank", ["heads", "ffn", "vocab", "dp", "interconnect", "precision", "attention", "act_ckpt"])
def test_one_blank_cell_never_breaks_a_row(blank):
    row = {**rows()["2"], blank: ""}
    assert question_from_row(row).job.layout.gpus == 8


def test_garbage_is_skipped_not_raised():
    base = rows()["1"]
    for column in ("n_gpus", "layers", "micro_batch", "tp", "global_batch", "seq_len"):
        for value in ("0", "-3", "many", "7"):
            with contextlib.suppress(Skip):
                assert question_from_row({**base, column: value}).job.global_batch >= 1


def test_scores():
    assert mean_absolute_percentage_error([(110, 100), (80, 100)]) == pytest.approx(15)
    assert mean_absolute_percentage_error([]) is None
    assert spearman([1, 2, 3, 4], [10, 20, 30, 40]) == pytest.approx(1)
    assert spearman([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    assert spearman([1, 2], [1, 2]) is None
    assert quantile([1, 2, 3, 4, 5], 0.5) == 3


def test_grades_as_a_csv_header_are_stable():
    with (DATA / "excerpt_language.csv").open() as file:
        header = next(line for line in file if not line.startswith("#"))
    assert len(next(csv.reader([header]))) == 42


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(["1", "2", "3", "5"]),
    st.dictionaries(
        st.sampled_from(
            [
                "layers",
                "hidden",
                "heads",
                "kv_heads",
                "ffn",
                "vocab",
                "seq_len",
                "gpu",
                "n_gpus",
                "gpus_per_node",
                "precision",
                "tp",
                "pp",
                "vpp",
                "cp",
                "sp",
                "dp",
                "dp_kind",
                "micro_batch",
                "grad_accum",
                "global_batch",
                "act_ckpt",
                "attention",
                "step_time_s",
                "mem_gpu",
                "mem_def",
                "interconnect",
            ]
        ),
        st.sampled_from(
            [
                "",
                "0",
                "-1",
                "N/A",
                "1",
                "7",
                "0.5",
                "1e30",
                "OOM",
                "yes",
                "fp8",
                "H100",
                "V100",
                "12 x 3",
                "∞",
            ]
        ),
        max_size=6,
    ),
)
def test_any_mixture_of_odd_cells_is_predicted_or_skipped(row_id, odd):
    grade = grade_row({**rows()[row_id], **odd})
    assert grade.skipped or grade.predicted_gib > 0


def bert_row(**changes):
    row = {
        "row_id": "1",
        "model": "BERT-large pre-train",
        "gpu": "A100 80GB",
        "n_gpus": "1",
        "precision": "AMP",
        "batch_per_gpu": "256",
        "seq_len": "128",
        "samples_s": "580",
        "notes": "grad accumulation steps 32",
        "_comments": "",
    }
    return {**row, **changes}


def test_the_accumulated_batch_of_a_table_is_taken_apart():
    question = question_from_vision_row(bert_row(batch_per_gpu="8192"))
    assert question.job.layout.micro_batch == 256
    assert question.samples == 8192
    with pytest.raises(Skip, match="accumulated"):
        question_from_vision_row(bert_row(batch_per_gpu="8192", notes=""))


def test_only_recipes_that_gather_masked_positions_score_fewer():
    every, masked = (question_from_vision_row(bert_row(_comments=words)) for words in ("NGC 20.03", "NGC 21.11"))
    assert every.job.model.predicted_share == 1
    assert masked.job.model.predicted_share == 80 / 512
    assert masked.predict().total < every.predict().total


def test_blank_precision_is_not_autocast():
    row = {"model": "TinyLlama", "layers": "22", "hidden": "2048", "seq_len": "2048", "vocab": "32000", "gpu": "A100"}
    row |= {"n_gpus": "1", "global_batch": "4", "micro_batch": "4", "precision": ""}
    assert question_from_row(row).job.precision.cast_bytes == 0
    assert question_from_row({**row, "precision": "bf16 autocast"}).job.precision.cast_bytes == 2
