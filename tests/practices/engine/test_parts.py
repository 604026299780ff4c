"""An error of a practice's own is a refusal where the part is still as the script made it; the training goes on."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from practices.changed import run_with

from vivace.practices.engine.change import Change
from vivace.practices.engine.parts import Parts
from vivace.protocol.answers import PracticeAnswer, PracticeState


class Faulty(Change):
    """``halfway``: after the first of two things was changed."""

    def __init__(self, halfway: bool) -> None:
        super().__init__()
        self.halfway = halfway

    def flags(self) -> None:
        raise OSError("no such flag\nand more lines")

    def optimizer(self, kind: type, arguments: dict[str, Any]) -> None:
        if self.halfway:
            arguments["lr"] = 0.5
            self.applied("another rate")
        raise ValueError("no such rate")

    def model(self, root: Any) -> None:
        if self.halfway:
            root.weight.data = root.weight.data.double()
        raise ValueError("no such model")

    def inputs(self, root: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        raise ValueError("of the script, perhaps")


def test_an_error_with_flags_is_a_refusal_in_one_line():
    change = Faulty(halfway=False)
    Parts([change]).set_flags()
    assert change.refused == "could not be applied: OSError: no such flag"


class Newer(Change):
    """Uses something that a torch of another release has."""

    def __init__(self, use: Callable[[], object]) -> None:
        super().__init__()
        self.use = use

    def flags(self) -> None:
        self.use()


def import_it() -> None:
    from torch.optim import AnotherAdam  # type: ignore[attr-defined]  # noqa: F401


@pytest.mark.parametrize("use", [lambda: torch.optim.AnotherAdam, import_it], ids=["attribute", "import"])
def test_what_this_torch_lacks_is_a_refusal_that_names_it(use: Callable[[], object]):
    change = Newer(use)
    Parts([change]).set_flags()
    says = f"this torch ({torch.__version__}) has no torch.optim.AnotherAdam"
    assert change.answer() == PracticeAnswer(PracticeState.REFUSED, says)


@pytest.mark.parametrize("halfway", [False, True])
def test_arguments_are_put_back(halfway: bool):
    change = Faulty(halfway)
    arguments = {"lr": 0.1}
    Parts([change]).change_arguments(change, change.optimizer, arguments, torch.optim.SGD)
    assert arguments == {"lr": 0.1}
    assert (change.done, change.refused) == (None, "could not be applied: ValueError: no such rate")


def prepare(change: Faulty, root: torch.nn.Module) -> None:
    change.flags = lambda: None  # type: ignore[method-assign]
    Parts([change]).prepare(root)


def test_a_model_that_is_untouched_is_used_as_it_is():
    change = Faulty(halfway=False)
    prepare(change, torch.nn.Linear(2, 2))
    assert change.refused == "could not be applied: ValueError: no such model"


def test_a_model_that_is_changed_by_half_is_not_used():
    change = Faulty(halfway=True)
    with pytest.raises(ValueError, match="no such model"):
        prepare(change, torch.nn.Linear(2, 2))
    assert change.refused is None


def test_models_may_hold_tensors_without_strides():
    root = torch.nn.Sequential(torch.nn.LazyLinear(2))
    root.register_buffer("graph", torch.eye(3).to_sparse())
    change = Faulty(halfway=False)
    prepare(change, root)
    assert change.refused == "could not be applied: ValueError: no such model"


def test_once_the_script_computes_errors_are_not_caught():
    change = Faulty(halfway=False)
    with pytest.raises(ValueError, match="of the script, perhaps"):
        Parts([change]).attempt(change, change.inputs, torch.nn.Linear(2, 2), (), {})


# To ask whether it has a set_epoch raises KeyError: after the number of workers was changed already.
SCRIPT = """
import json, torch
from torch.utils.data import DataLoader, Dataset
class Rows(Dataset):
    columns = {"x": torch.ones(8, 2)}
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self.columns[name]
    def __len__(self):
        return 8
    def __getitem__(self, index):
        return self.x[index]
if __name__ == "__main__":
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    loader = DataLoader(Rows(), 2)
    for rows in loader:
        model(rows).sum().backward()
        optimizer.step()
    try:
        torch.optim.SGD(["no tensor"], 0.01)
    except TypeError as error:
        print(json.dumps([loader.num_workers, str(error)]))
"""


def test_a_script_goes_on_without_a_practice_that_fails_and_sees_its_own_errors(tmp_path: Path):
    done = run_with(SCRIPT, ["workers=2", "fused_optimizer"], tmp_path)
    assert done.told["workers=2"].startswith("could not be applied: KeyError: ")
    assert done.told["fused_optimizer"] == "applied: SGD(fused=True)"
    workers, error = done.printed
    assert workers == 0
    assert error.startswith("optimizer can only optimize Tensors")


def test_strict_makes_it_an_error(vivace_here: Callable, tmp_path: Path):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    done = vivace_here("run", "--strict", "--with", "workers=2", "--", sys.executable, str(path))
    assert done.code == 2
    assert "workers=2 does not apply: could not be applied: KeyError: " in done.err
