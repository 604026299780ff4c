"""Each technique equals torch's own result on four real processes, and sends what its page says."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import environment
from forked import process

from vivace.parallel.underhood.__main__ import main
from vivace.parallel.underhood.demonstrations import DEMONSTRATIONS

ROUNDING = 1e-12


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    words = [sys.executable, str(Path(__file__).with_name("on_four_ranks.py"))]
    done = process.run(words, tmp_path_factory.mktemp("ranks"), environment(), 900)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", DEMONSTRATIONS)
def test_a_demonstration_agrees_with_torch_on_every_rank(found: dict[str, Any], name: str) -> None:
    assert all(rank[name]["difference"] < ROUNDING for rank in found["demonstrations"])


def rows(found: dict[str, Any], name: str, rank: int = 0) -> list[list[str]]:
    return found["demonstrations"][rank][name]["rows"]


def test_a_ring_sends_two_times_n_minus_one_messages_and_parts(found: dict[str, Any]) -> None:
    sent = {row[0]: (int(row[1]), int(row[2])) for row in rows(found, "ring")}
    size = 12_000 * 8
    assert sent["all-reduce"] == (6, size * 6 // 4)
    assert sent["reduce-scatter"] == sent["all-gather"] == (3, size * 3 // 4)


def test_a_broadcast_passes_values_on_as_a_tree(found: dict[str, Any]) -> None:
    by_rank = [int(rows(found, "ring", rank)[0][1]) for rank in range(4)]
    assert by_rank == [2, 1, 0, 0]


def test_any_size_and_root(found: dict[str, Any]) -> None:
    assert all(value == 0 for rank in found["collectives"] for value in rank.values())


def test_buckets_save_messages_and_no_bytes(found: dict[str, Any]) -> None:
    shown = [[int(cell) for cell in row] for row in rows(found, "data-parallel")]
    assert [row[1] for row in shown] == [6, 2, 1]
    assert [row[2] for row in shown] == [36, 12, 6]
    assert {row[3] for row in shown} == {shown[0][4] * 6 // 4}


def test_data_parallel_equals_torch_with_accumulation_and_unused_layers(found: dict[str, Any]) -> None:
    assert all(rank["gradients"] < ROUNDING for rank in found["data_parallel"])


def test_zero_keeps_and_sends_what_its_table_says(found: dict[str, Any]) -> None:
    whole = (16 * 32 + 32 + 32 * 32 + 32 + 32 * 4 + 4) * 8  # divides by four: no padding
    one, two, three = ([int(cell) for cell in row] for row in rows(found, "zero"))
    assert one[1] == two[1] == whole + 2 * whole // 4
    assert three[1] == 3 * whole // 4
    assert one[3] == two[3] == whole * 6 // 4
    assert three[3] == whole * 9 // 4
    assert one[2] == 2 * whole > two[2] > three[2]


def test_a_transformer_layer_communicates_four_times(found: dict[str, Any]) -> None:
    embedding, layer = rows(found, "tensor")
    assert (embedding[1], layer[1], layer[2]) == ("1", "2", "2")


STEPS = ("1 f backward", "2 columns", "3 embedding", "4 attention", "5 mlp", "6 rows", "7 block", "11 gradients")


@pytest.mark.parametrize("step", STEPS)
def test_a_step_of_the_course(found: dict[str, Any], step: str) -> None:
    assert all(rank[step] < ROUNDING for rank in found["tensor_steps"])


def test_the_pair_of_functions_and_the_groups(found: dict[str, Any]) -> None:
    steps = found["tensor_steps"]
    assert all(rank["1 g"] == [0, 0] for rank in steps)
    assert [rank["8 groups"] for rank in steps] == [[0, 2, 0, 2], [1, 2, 0, 2], [0, 2, 1, 2], [1, 2, 1, 2]]
    messages_of_an_all_reduce = 2
    assert {rank["9 messages in the model's group"] for rank in steps} == {4 * messages_of_an_all_reduce}


def test_one_f_one_b_keeps_fewer_activations_with_the_same_bubble(found: dict[str, Any]) -> None:
    by_rank = [{row[0]: row for row in rows(found, "pipeline", rank)} for rank in range(4)]
    assert [int(rank["gpipe"][3]) for rank in by_rank] == [8, 8, 8, 8]
    assert [int(rank["1F1B"][3]) for rank in by_rank] == [4, 3, 2, 1]
    assert by_rank[0]["gpipe"][2] == by_rank[0]["1F1B"][2] == "27%"


def test_two_blocking_sends_wait_for_each_other(found: dict[str, Any]) -> None:
    assert "in both_send_first" in found["both_send_first"]  # the traceback of the rank that gave up


def test_a_rank_that_ends_is_named(found: dict[str, Any]) -> None:
    assert "rank 1 failed" in found["a rank ends"] or "rank 1 ended" in found["a rank ends"]


def test_the_list_and_a_wrong_number_of_ranks(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in DEMONSTRATIONS)
    with pytest.raises(SystemExit):
        main(["ring", "--ranks", "1"])
    assert "needs 2 to 64 ranks" in capsys.readouterr().err
