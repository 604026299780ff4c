"""The probe of ``find batch``: a batch of the longest samples comes first, several times; or it says why not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from practices.changed import run_with
from torch.utils.data import DataLoader, Dataset, IterableDataset

from vivace.practices.engine import longest
from vivace.practices.engine.change import NotApplicable
from vivace.practices.engine.longest import LongestFirst, longest_batch, size_of

SCRIPT = """
import json, torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

class Texts(Dataset):
    def __len__(self):
        return 40
    def __getitem__(self, index):
        return torch.ones(1 + index * 7 % 40)

class Stream(IterableDataset):
    def __iter__(self):
        return (torch.ones(3) for _ in range(40))

def pad(texts):
    return torch.nn.utils.rnn.pad_sequence(texts, batch_first=True)

loader = DataLoader(TRAINING(), 4, collate_fn=pad, num_workers=2)
validation = DataLoader(Texts(), 4, collate_fn=pad)
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
seen = []
for texts in loader:
    seen.append(sorted((texts != 0).sum(1).tolist()))
    texts.zero_()
    model(texts[..., None]).mean().backward()
    optimizer.step()
for texts in validation:
    model(texts[..., None])
print(json.dumps(seen))
"""


def test_the_longest_batch_comes_as_often_as_asked_and_then_the_loader_s_own(tmp_path: Path):
    done = run_with(SCRIPT.replace("TRAINING", "Texts"), ["probe:longest_first=2"], tmp_path)
    assert done.printed[:2] == [[37, 38, 39, 40]] * 2  # also after the script wrote into it
    assert sorted(length for batch in done.printed[2:] for length in batch) == list(range(1, 41))
    assert done.told == {
        "probe:longest_first=2": "applied: a batch of the longest of 40 samples looked at, of 40",
    }


def test_a_validation_loader_does_not_stand_for_the_one_that_trains(tmp_path: Path):
    done = run_with(SCRIPT.replace("TRAINING", "Stream"), ["probe:longest_first"], tmp_path)
    assert "the dataset is iterable" in done.told["probe:longest_first"]
    assert not done.told["probe:longest_first"].startswith("applied")


class Rows(Dataset):
    def __init__(self, sizes: list[int]) -> None:
        self.sizes = sizes

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, index: int):
        return torch.zeros(self.sizes[index])


class Huge(Rows):
    def __len__(self) -> int:
        return 10**9

    def __getitem__(self, index: int):
        return torch.zeros(1 + index % 7)


class Stream(IterableDataset):
    def __iter__(self):
        return iter(())


@pytest.mark.parametrize(
    ("loader", "why"),
    [
        (DataLoader(Stream(), 2), "iterable"),
        (DataLoader(Rows([1, 2]), batch_sampler=[[0, 1]]), "makes its batches itself"),
        (DataLoader(Rows([3, 3, 3]), 2), "no sample looks longer"),
    ],
)
def test_refused_where_there_is_no_longest(loader: DataLoader, why: str):
    with pytest.raises(NotApplicable, match=why):
        longest_batch(loader)


def test_refused_where_too_few_samples_could_be_looked_at(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(longest, "_SECONDS", -1.0)  # the time is over after the first
    with pytest.raises(NotApplicable, match="only 1 samples could be looked at"):
        longest_batch(DataLoader(Rows([1, 2, 3]), 2))


def test_a_dataset_that_fails_ends_the_looking_not_the_training():
    class Fails(Rows):
        def __getitem__(self, index: int):
            raise OSError("broken file")

    change = LongestFirst()
    with pytest.raises(NotApplicable, match="OSError: broken file"):
        change.iterator(DataLoader(Fails([1, 2]), 1), iter(()))


def test_a_huge_dataset_is_sampled(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(longest, "_MOST_SAMPLES", 500)
    batch, told = longest_batch(DataLoader(Huge([]), 4))
    assert batch.shape == (4, 7)
    assert told.endswith("of 1000000000")


def test_sizes_of_nested_samples_and_objects():
    @dataclass
    class Graph:
        nodes: torch.Tensor
        name: str

    array = torch.zeros(2, 3).numpy()
    assert size_of({"a": [array, "four"], "b": (torch.zeros(5), 1.0, b"xy")}) == 6 + 4 + 5 + 1 + 2
    assert size_of(Graph(torch.zeros(9), "g")) == 10
