"""Tensors inside inputs and outputs are replaced: the nesting keeps its types, and what the script holds stays."""

from __future__ import annotations

from collections import OrderedDict, UserDict, defaultdict, namedtuple
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import torch
from practices.changed import run_with

from vivace.practices.engine.tensors import map_tensors

Pair = namedtuple("Pair", "x y")


class Output(OrderedDict):
    """As transformers' ModelOutput: keys are attributes, too."""

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        super().__setattr__(key, value)


class Shared(MutableMapping):
    """A copy of it has the same store."""

    def __init__(self, **items: Any) -> None:
        self.items_ = items

    def __getitem__(self, key: str) -> Any:
        return self.items_[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.items_[key] = value

    def __delitem__(self, key: str) -> None:
        del self.items_[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.items_)

    def __len__(self) -> int:
        return len(self.items_)


@dataclass
class Computed:
    x: torch.Tensor
    twice: torch.Tensor = field(init=False)
    never_set: torch.Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.twice = self.x * 2


@dataclass(frozen=True)
class Frozen:
    x: torch.Tensor


def halved(value: Any) -> Any:
    return map_tensors(value, lambda tensor: tensor.to(torch.bfloat16))


@pytest.mark.parametrize("kind", [dict, OrderedDict, Output, UserDict, lambda **items: defaultdict(list, items)])
def test_a_mapping_keeps_its_type_and_the_given_one_stays_as_it_is(kind: Any):
    tensor = torch.ones(2)
    given = kind(name="cat", x=tensor)
    done = halved(given)
    assert type(done) is type(given)
    assert (list(done), done["x"].dtype) == (["name", "x"], torch.bfloat16)
    assert given["x"] is tensor


def test_a_models_output_has_its_attributes_changed_too():
    given = Output(logits=torch.ones(2))
    assert halved(given).logits.dtype is torch.bfloat16
    assert given.logits.dtype is torch.float32


@pytest.mark.parametrize("given", [MappingProxyType({"x": torch.ones(2)}), Shared(x=torch.ones(2))])
def test_what_cannot_be_copied_is_returned_as_it_is(given: Any):
    assert halved([given, torch.ones(2)])[0] is given
    assert given["x"].dtype is torch.float32


def test_a_dataclass_may_compute_fields_of_its_own():
    given = Computed(torch.ones(2))
    done = halved(given)
    assert (done.x.dtype, done.twice.dtype) == (torch.bfloat16, torch.bfloat16)
    assert (given.x.dtype, given.twice.dtype) == (torch.float32, torch.float32)


def test_a_frozen_dataclass_and_a_namedtuple_keep_their_types():
    done = halved(Pair(Frozen(torch.ones(2)), "name"))
    assert (type(done), type(done.x), done.x.x.dtype, done.y) == (Pair, Frozen, torch.bfloat16, "name")


@pytest.mark.parametrize("given", [Pair(1, 2), OrderedDict(a=1), [1, (2,)], Frozen(None)])  # type: ignore[arg-type]
def test_what_holds_no_tensor_is_the_same_object(given: Any):
    assert halved(given) is given


SCRIPT = """
import collections, json, torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def forward(self, batch):
        self.inside = str(batch["x"].dtype)
        return self.layer(batch["x"])
model = Net()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(3):
    batch = collections.OrderedDict(x=torch.ones(2, 4))
    model(batch).sum().backward()
    optimizer.step()
print(json.dumps([model.inside, str(batch["x"].dtype)]))
"""


def test_a_scripts_batch_stays_as_the_script_made_it(tmp_path: Path):
    assert run_with(SCRIPT, ["pure_bf16"], tmp_path).printed == ["torch.bfloat16", "torch.float32"]
