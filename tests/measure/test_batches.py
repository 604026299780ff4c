"""Samples and tokens from shapes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vivace.measure.inside.facts.batches import BatchReader, describe_inputs, host_mib, padding
from vivace.measure.inside.patches.modules import Forwards
from vivace.measure.inside.payload import _input_shapes
from vivace.measure.inside.steps.timeline import Step


def batch_size_of(batch: object, asked: int | None = None) -> int | None:
    return BatchReader(asked).size(batch)


def test_the_first_tensor_says_it():
    assert batch_size_of([torch.zeros(32, 3, 8, 8), torch.zeros(32)]) == 32
    assert batch_size_of({"pixels": torch.zeros(5, 3), "labels": torch.zeros(5)}) == 5
    assert batch_size_of({"meta": ["a", "b"], "inner": {"x": torch.zeros(7, 2)}}) == 7


def test_time_first_sequences_are_known_by_the_loaders_batch_size():
    assert batch_size_of([torch.zeros(100, 16, 8), torch.zeros(16)], asked=16) == 16


def test_a_list_with_one_tensor_per_image_is_counted():
    images = [torch.zeros(3, 20 + i, 30) for i in range(4)]
    assert batch_size_of((images, [{"boxes": torch.zeros(2, 4)}] * 4), asked=4) == 4


def test_the_last_smaller_batch_keeps_its_own_size():
    """Even where another dimension happens to equal the size that was asked for."""
    reader = BatchReader(64)
    assert [reader.size([torch.zeros(n, 64), torch.zeros(n)]) for n in (64, 6)] == [64, 6]
    pairs = BatchReader(2)
    assert [pairs.size([torch.zeros(n, 5), torch.zeros(n)]) for n in (2, 1)] == [2, 1]
    time_first = BatchReader(8)
    assert [time_first.size([torch.zeros(50, n, 3), torch.zeros(n)]) for n in (8, 2)] == [8, 2]


def test_a_batch_that_raises_when_looked_at_is_no_error():
    nested = torch.nested.nested_tensor([torch.zeros(2, 3), torch.zeros(4, 3)])
    assert batch_size_of(nested) in (None, 2)
    assert describe_inputs((nested,), {})[1] is None


def test_something_without_tensors_is_no_error():
    assert batch_size_of("text") is None
    assert batch_size_of(["a", "b", "c"]) == 3
    assert batch_size_of(None) is None


def test_token_ids_are_counted_as_tokens_and_images_are_not():
    assert describe_inputs((torch.zeros(4, 10, dtype=torch.int64),), {}) == (4, 40, (4, 10))
    assert describe_inputs((), {"attention_mask": torch.ones(4, 10), "input_ids": torch.zeros(4, 10).long()}) == (
        4,
        40,
        (4, 10),
    )
    assert describe_inputs((torch.zeros(4, 3, 8, 8),), {}) == (4, None, (4, 3, 8, 8))
    assert describe_inputs((), {}) == (None, None, None)


def test_the_size_of_a_batch_is_that_of_its_tensors_on_the_host():
    image, label = torch.zeros(2, 2**18), torch.zeros(2**17, dtype=torch.int64)
    assert host_mib((image, {"deep": [label, "name", 3, None]})) == 3.0
    assert host_mib(image.to("meta")) == 0.0
    assert host_mib("no tensor at all") == 0.0


@pytest.mark.parametrize(
    ("rows", "filled"),
    [
        ([[5, 6, 7, 0, 0, 0], [1, 2, 3, 4, 5, 6]], (2, 0)),  # of a run of three the first may be a token
        ([[5, 6, 7, 8, 9, 0], [1, 2, 3, 4, 5, 6]], (0, 0)),
        ([[0, 0, 0, 0], [1, 1, 1, 1]], (0, 0)),  # one value all along: not a text
        ([[0, 6, 0, 7, 0, 0], [1, 2, 3, 4, 5, 6]], (1, 2)),  # the value is one of the text's, too
    ],
)
def test_padding_is_counted_from_the_rows_ends(rows: list[list[int]], filled: tuple[int, int]):
    ids = torch.tensor(rows)
    at_the_end, elsewhere, positions = padding((ids,), {}) or (None, None, 0)
    assert (int(at_the_end), int(elsewhere), positions) == (*filled, ids.numel())
    assert padding((ids.float(),), {}) is None
    assert padding((), {"input_ids": ids}) is not None


def test_time_first_inputs_are_known_by_the_hidden_state_beside_them():
    """35 words of 20 texts, as in PyTorch's example word_language_model."""
    ids, state = torch.zeros(35, 20, dtype=torch.int64), torch.zeros(2, 20, 200)
    assert describe_inputs((ids, (state, state)), {}) == (20, 700, (35, 20))
    assert describe_inputs((ids, state), {}) == (20, 700, (35, 20))
    assert describe_inputs((ids,), {"hidden": state}) == (20, 700, (35, 20))
    assert describe_inputs((torch.zeros(35, 20, 64), (state, state)), {})[0] == 20
    batch_first = torch.zeros(2, 35, 200)  # the state of 35 texts of 20 words
    assert describe_inputs((ids, batch_first), {}) == (35, 700, (35, 20))
    assert describe_inputs((ids,), {}) == (35, 700, (35, 20))
    pair = torch.zeros(8, 20, 64), torch.zeros(8, 20, 32)  # two sequences beside each other, batch first
    assert describe_inputs(pair, {})[0] == 8
    assert describe_inputs((torch.zeros(8, 3, 4, 4), torch.zeros(8, 3, 5)), {})[0] == 8


@pytest.mark.parametrize("letters", [2, 10, 65, 50_000])
@given(st.integers(0, 2**31))
def test_text_without_padding_has_none_and_padded_text_has_its_share(letters: int, seed: int):
    """Rows of few letters often end in two equal ones by chance."""
    torch.manual_seed(seed)
    text, forwards = torch.randint(0, letters, (32, 64)), Forwards()
    forwards.note_padding((text,), {})
    forwards.settle_padding()
    assert forwards.padding_share is not None
    assert forwards.padding_share < 0.005  # less than is shown
    text[:, 40:] = letters  # a value of its own
    padded = Forwards()
    padded.note_padding((text,), {})
    padded.settle_padding()
    assert padded.padding_share == pytest.approx(23 / 64)


@pytest.mark.parametrize(
    ("steps", "shapes"),
    [
        ([[(8, 3)], [(8, 3)], [(2, 3)]], 2),  # a smaller last batch
        ([[(8, 3), (8, 100)]] * 3 + [[(2, 3), (2, 100)]], 2),  # a GAN's two networks, and a smaller last batch
        ([[(8,), (4,)], [(4,), (8,)], [(4,), (4,)]], 2),  # two sizes, in any order, over two micro-batches
        ([[(n, 7)] for n in range(9)], 9),
        ([], 0),
    ],
)
def test_shapes_are_those_of_one_network_over_the_steps(steps: list, shapes: int):
    made = [Step(forwards=[{"shape": shape, "grad": True} for shape in step]) for step in steps]
    assert _input_shapes(made) == shapes
