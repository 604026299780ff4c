"""``--param lr=find``: the range of a learning rate from a range test of the command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Done
from forked.process import PYTHON
from hypothesis import given
from hypothesis import strategies as st

from vivace.hpo.found_rate import range_around
from vivace.hpo.written import read_space, sought_in

# A bowl with curvature 4: plain gradient descent is stable below a rate of 2 / 4.
BOWL = """
import sys, torch
w = torch.nn.Parameter(torch.ones(3))
optimizer = torch.optim.SGD([w], lr=float(sys.argv[1]), momentum=float(sys.argv[2]))
for step in range(300):
    optimizer.zero_grad()
    loss = 0.5 * (torch.tensor([4.0, 1.0, 0.25]) * w * w).sum()
    loss.backward()
    optimizer.step()
print("val_loss", loss.item())
"""


def test_the_range_is_found_and_the_study_searches_it(tmp_path: Path, vivace: Callable[..., Done]) -> None:
    (tmp_path / "train.py").write_text(BOWL)
    done = vivace(
        "hpo", "--param", "lr=find", "--param", "momentum=choice(0,0.5)", "--default", "lr=0.004,momentum=0",
        "--metric", "min val_loss", "--trials", "2", "--confirm-seeds", "0", "--json", "--",
        PYTHON, "train.py", "{lr}", "{momentum}",
    )  # fmt: skip
    record = json.loads(done.out)
    tried = json.loads((done.folder / "find-lr" / "rates.json").read_text())
    low, high = (float(word) for word in record["parameters"][0]["range"][4:-1].split(","))
    assert low == pytest.approx(min(0.004, tried["suggested"] / 10), rel=0.01)
    assert high == pytest.approx(min(tried["suggested"] * 10, tried["diverges"]), rel=0.01)
    assert 0.1 < high < 2  # where the bowl becomes unstable, seen a few steps later
    assert f"lr: log({low!r},{high!r}), by a range test of the command" in done.err
    assert [one["state"] for one in record["trials"][:1]] == ["complete"]  # the second may be too near to the upper end
    assert all(low <= float(one["values"]["lr"]) <= high for one in record["trials"])


def test_a_learning_rate_that_does_nothing_has_no_range(tmp_path: Path, vivace_here: Callable[..., Done]) -> None:
    (tmp_path / "train.py").write_text(BOWL.replace("0.5 * (", "0.0 * ("))
    words = ("--param", "lr=find", "--metric", "min val_loss", "--", PYTHON, "train.py", "{lr}", "0")
    assert "lr=find: the loss falls at no learning rate" in vivace_here("hpo", *words).err


def test_it_is_for_one_parameter_and_not_for_a_login_node(vivace_here: Callable[..., Done]) -> None:
    two = ("--param", "lr=find", "--param", "wd=find", "--metric", "min a", "--", "true", "{lr}", "{wd}")
    assert "only one learning rate can be found, not lr and wd" in vivace_here("hpo", *two).err
    sent = ("--param", "lr=find", "--metric", "min a", "--slurm", "--time 1h", "--", "true", "{lr}")
    assert "lr=find runs the command here" in vivace_here("hpo", *sent).err


def test_a_file_may_say_it_too(tmp_path: Path) -> None:
    file = tmp_path / "space.toml"
    file.write_text('[param]\nlr = "find"\nwd = "log(1e-5,1)"\n')
    assert sought_in((), file) == ["lr"]
    space = read_space((), file, (), {"lr": "log(0.001,0.1)"}).space
    assert [str(one) for one in space.parameters] == ["log(0.001,0.1)", "log(1e-05,1)"]


@given(
    suggested=st.floats(1e-7, 10.0),
    diverges=st.none() | st.floats(1e-7, 10.0),
    own=st.none() | st.floats(1e-7, 10.0),
)
def test_what_was_suggested_and_the_own_rate_are_inside(
    suggested: float, diverges: float | None, own: float | None
) -> None:
    low, high = range_around(suggested, diverges, own)
    assert 0 < low < high
    assert low * 0.99 <= suggested <= high * 1.01
    assert own is None or low <= own <= high
