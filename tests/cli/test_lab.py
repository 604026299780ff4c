"""``vivace lab`` as a user runs it: the list, a page, a run with its table and picture, a wrong name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from vivace.labs.catalogue import all_labs


def test_the_list_has_every_lab_with_its_day(vivace_here: Callable) -> None:
    done = vivace_here("lab", "list")
    assert done.code == 0, done.err
    rows = [line.split() for line in done.out.splitlines()[1:]]
    assert [(row[0], int(row[1])) for row in rows[: len(all_labs())]] == [
        (lab.name, lab.header.day) for lab in all_labs()
    ]
    assert [lab["name"] for lab in vivace_here("lab", "list", "--json").record] == [lab.name for lab in all_labs()]


def test_a_page(vivace_here: Callable) -> None:
    done = vivace_here("lab", "show", "zero")
    assert done.out.startswith("# Lab: ZeRO under the hood\n")
    assert "](../" not in done.out
    assert vivace_here("lab", "show", "zero", "--json").record["day"] == 4


def test_a_run_prints_and_writes_its_table_and_says_what_to_compare(vivace_here: Callable, tmp_path: Path) -> None:
    done = vivace_here("lab", "run", "tensor-parallel", "--small", "--out", "here", "--json")
    assert done.code == 0, done.err
    assert done.record["tables"]["table"][1]["all_reduces_forward"] == "2"
    assert done.record["small"] is True
    assert sorted(path.name for path in (tmp_path / "here").iterdir()) == ["table.csv", "table.png"]
    assert "all_reduces_forward" in done.err  # the lab's own output


def test_a_run_as_a_command(vivace: Callable) -> None:
    done = vivace("lab", "run", "messages", "--small")
    assert done.code == 0, done.err
    assert "all-reduce" in done.out
    assert "Predict first: Four ranks" in done.err
    assert "Compare with your prediction. The bytes of an all-reduce" in done.err
    assert done.folder.name == "lab-messages-001"


def test_an_unknown_lab(vivace_here: Callable) -> None:
    done = vivace_here("lab", "run", "mesages")
    assert (done.code, done.out) == (2, "")
    assert "did you mean messages?" in done.err
