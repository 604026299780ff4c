"""Headers, cells, pages and notebooks of labs, and a notebook in a real kernel."""

from __future__ import annotations

import os
from pathlib import Path
from unittest.mock import patch

import nbformat
import pytest
from conftest import environment
from nbclient import NotebookClient
from pydantic import ValidationError

from vivace.errors import UserError
from vivace.labs.bench import Table
from vivace.labs.catalogue import Lab, all_labs, find_lab
from vivace.labs.cells import cells
from vivace.labs.header import split_source
from vivace.labs.page import notebook, page
from vivace.labs.running import run_lab

HEADER = """# /// lab
# day = 1
# order = 1
# title = "a lab"
# goal = "to learn"
# predict = "what comes"
# compare = "both"
# see = "this"
# hardware = "nothing"
# about_s = 5
# ///
"""


def test_a_source_is_a_header_and_cells() -> None:
    header, body = split_source(HEADER + "\n# %% [markdown]\n# text\n#\n# more\n\n# %%\nx = 1\n\nprint(x)\n")
    assert (header.day, header.goal) == (1, "to learn")
    every = cells(body)
    assert [(cell.text, cell.is_code) for cell in every] == [("text\n\nmore", False), ("x = 1\n\nprint(x)", True)]
    made = page(Lab("it", Path("it.py"), header, tuple(every)))
    assert made.startswith("# Lab: a lab\n\nDay 1. Needs torch.")
    assert "\n    x = 1\n\n    print(x)\n" in made
    assert made.index("**Predict first.** what comes") < made.index("x = 1") < made.index("**What you see.** this")


def test_a_wrong_source_is_refused() -> None:
    with pytest.raises(ValidationError, match="about_s"):
        split_source(HEADER.replace("about_s = 5", "about_s = 600"))
    with pytest.raises(ValidationError, match="gaol"):
        split_source(HEADER.replace("goal", "gaol"))
    with pytest.raises(ValueError, match="behind #"):
        cells("# %% [markdown]\nno comment\n")
    with pytest.raises(ValueError, match="begins with a cell"):
        cells("print(1)\n")


def test_every_lab_has_a_place_of_its_own_in_its_day() -> None:
    places = [(lab.header.day, lab.header.order) for lab in all_labs()]
    assert len(set(places)) == len(places) > 0
    assert places == sorted(places)


def test_every_lab_that_wants_a_machine_says_what_it_shows_without_it() -> None:
    assert [lab.name for lab in all_labs() if lab.header.full_needs and not lab.header.without] == []


def test_an_unknown_lab_is_a_sentence_with_a_hint() -> None:
    assert find_lab("data-parallel").name == "data_parallel"
    with pytest.raises(UserError, match="did you mean zero"):
        find_lab("zeroo")


def test_a_table_checks_its_rows() -> None:
    with pytest.raises(ValueError, match="1 values for 2 columns"):
        Table("a", "b").add(1)


@pytest.mark.parametrize("lab", all_labs(), ids=lambda lab: lab.name)
def test_notebooks_are_valid(lab: Lab) -> None:
    nbformat.validate(nbformat.reads(notebook(lab), as_version=4))


def test_a_notebook_runs_in_a_real_kernel(tmp_path: Path) -> None:
    made = nbformat.reads(notebook(find_lab("pipeline")), as_version=4)
    with patch.dict(os.environ, environment(PYDEVD_DISABLE_FILE_VALIDATION="1"), clear=True):
        NotebookClient(
            made, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
        ).execute()
    outputs = [output for cell in made.cells for output in cell.get("outputs", ())]
    printed = "".join(output.get("text", "") for output in outputs)
    assert "largest relative difference to one process" in printed
    assert any("Figure" in output.get("data", {}).get("text/plain", "") for output in outputs)
    assert list(tmp_path.iterdir()) == []  # files are written by `vivace lab run` alone


def test_a_package_that_is_not_installed_is_named_with_how_to_get_it(tmp_path: Path) -> None:
    lab = find_lab("jax_side_by_side")
    with (
        patch("vivace.labs.running.importlib.util.find_spec", lambda name: None if name == "jax" else name),
        pytest.raises(UserError, match="the lab jax_side_by_side needs jax") as refused,
    ):
        run_lab(lab, tmp_path, small=True)
    assert refused.value.hint == "pip install 'vivace[jax]'"
