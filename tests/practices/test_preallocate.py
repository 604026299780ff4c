"""The longest samples come first, in the first epoch, each as often as before; not where that cannot be known."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from practices.changed import run_with
from torch.utils.data import DataLoader, Dataset, IterableDataset

from vivace.practices.engine.change import NotApplicable
from vivace.practices.engine.sample_sizes import SampleSizes, size_of
from vivace.practices.preallocate import LongestFirst, _LongestFirst

SCRIPT = """
import json, torch
from torch.utils.data import DataLoader, Dataset

class Texts(Dataset):
    def __len__(self):
        return 40
    def __getitem__(self, index):
        return torch.ones(1 + index * 7 % 40)

def pad(texts):
    return torch.nn.utils.rnn.pad_sequence(texts, batch_first=True)

torch.manual_seed(0)
loader = DataLoader(Texts(), 4, shuffle=True, collate_fn=pad, num_workers=WORKERS)
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
epochs = []
for epoch in range(2):
    lengths = []
    for texts in loader:
        lengths.append((texts != 0).sum(1).tolist())
        optimizer.zero_grad()
        model(texts[..., None]).mean().backward()
        optimizer.step()
    epochs.append(lengths)
print(json.dumps(epochs))
"""


@pytest.mark.parametrize("workers", [0, 2])
def test_the_first_batch_has_the_longest_samples_and_every_sample_comes_once(tmp_path: Path, workers: int):
    done = run_with(SCRIPT.replace("WORKERS", str(workers)), ["preallocate"], tmp_path)
    first, second = done.printed
    assert sorted(first[0]) == [37, 38, 39, 40]
    for epoch in (first, second):
        assert sorted(length for batch in epoch for length in batch) == list(range(1, 41))
    assert sorted(second[0]) != [37, 38, 39, 40]
    assert done.told == {
        "preallocate": "applied: the first batch has the 4 longest of 40 of 40 samples looked at",
    }


def test_the_rest_of_the_order_is_the_script_s_own(tmp_path: Path):
    plain, changed = (
        run_with(SCRIPT.replace("WORKERS", "0"), words, tmp_path / str(len(words))).printed
        for words in ([], ["preallocate"])
    )
    before, after = ([length for batch in epochs[0] for length in batch] for epochs in (plain, changed))
    moved = sum(a != b for a, b in zip(before, after, strict=True))
    assert moved <= 8  # four to the front, and the four that were there in their places
    assert changed[1] == plain[1]


def test_samples_of_one_size_stay_where_they_are(tmp_path: Path):
    script = SCRIPT.replace("WORKERS", "0").replace("1 + index * 7 % 40", "5")
    done = run_with(script, ["preallocate"], tmp_path)
    assert done.told == {"preallocate": "samples are all of the same size"}


class Stream(IterableDataset):
    def __iter__(self):
        return iter(())


class Rows(Dataset):
    def __init__(self, sizes: list[int]) -> None:
        self.sizes = sizes

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, index: int):
        return torch.zeros(self.sizes[index])


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"dataset": Stream()}, "iterable"),
        ({"batch_sampler": [[0, 1]]}, "makes its batches itself"),
        ({"batch_size": None}, "makes its batches itself"),
        ({"sampler": iter([0])}, "has no end"),
    ],
)
def test_not_applied_where_the_longest_cannot_be_known(arguments: dict, why: str):
    usual = {"dataset": Rows([1, 2]), "batch_size": 2, "sampler": None, "batch_sampler": None, "shuffle": False}
    with pytest.raises(NotApplicable, match=why):
        LongestFirst().loader({**usual, "generator": None, **arguments})


@given(st.lists(st.integers(0, 50), min_size=1, max_size=60), st.integers(1, 20), st.randoms())
def test_swapping_keeps_every_index_and_puts_the_largest_first(sizes: list[int], batch_size: int, shuffled):
    order = list(range(len(sizes)))
    shuffled.shuffle(order)
    known = SampleSizes.__new__(SampleSizes)
    known.samples, known.known = len(sizes), dict(enumerate(sizes))
    swapped = list(order)
    _LongestFirst(order, None, batch_size, LongestFirst())._to_the_front(swapped, known)
    assert sorted(swapped) == sorted(order)
    assert sorted(sizes[i] for i in swapped[:batch_size]) == sorted(sizes)[-batch_size:]


def test_sizes_of_nested_samples():
    array = torch.zeros(2, 3).numpy()
    assert size_of({"a": [array, "four"], "b": (torch.zeros(5), 1.0, b"xy")}) == 6 + 4 + 5 + 1 + 2


def test_looking_draws_no_random_number_here_and_a_dataset_that_fails_gives_what_was_seen():
    class Fails(Rows):
        def __getitem__(self, index: int):
            torch.rand(3)
            os.environ["SEEN_HERE"] = "yes"
            if index == 13:
                raise OSError("broken file")
            return super().__getitem__(index)

    before = torch.random.get_rng_state()
    sizes = SampleSizes(Fails(list(range(20))))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert "SEEN_HERE" not in os.environ
    assert all(size == index for index, size in sizes.known.items())
    assert len(sizes.known) < 20


def test_what_the_script_asks_of_its_sampler_reaches_it():
    sampler = torch.utils.data.DistributedSampler(Rows([1, 2, 3, 4]), num_replicas=2, rank=1, shuffle=False)
    arguments = {
        "dataset": Rows([1, 2, 3, 4]), "batch_size": 1, "sampler": sampler, "batch_sampler": None, "shuffle": None,
        "generator": None,
    }  # fmt: skip
    LongestFirst().loader(arguments)
    loader = DataLoader(arguments["dataset"], 1, sampler=arguments["sampler"])
    loader.sampler.set_epoch(3)
    assert sampler.epoch == 3
    assert len(loader) == 2
    assert [len(batch[0]) for batch in loader] == [4, 2]  # the rank's own samples, the longest first
