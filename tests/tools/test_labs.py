"""Labs: page and notebook come from one source, and its cells run, in a real kernel where one is installed."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LABS = sorted((ROOT / "docs" / "labs").glob("*.py"))
sys.path.insert(0, str(ROOT / "tools"))

import labs  # noqa: E402

KERNEL = all(importlib.util.find_spec(name) for name in ("nbclient", "nbformat", "ipykernel"))


@pytest.mark.parametrize("source", LABS, ids=lambda path: path.stem)
def test_page_and_notebook_are_those_of_the_source(source: Path) -> None:
    for path, text in labs.products(source).items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name} is out of date: run python tools/labs.py"


def test_there_is_one_for_each_technique() -> None:
    assert [path.stem for path in LABS] == ["data_parallel", "pipeline", "tensor_parallel", "zero"]


def test_a_lab_is_made_of_cells() -> None:
    every = labs.cells("# %% [markdown]\n# # A lab\n#\n# text\n\n# %%\nx = 1\n\nprint(x)\n")
    assert [(cell.text, cell.is_code) for cell in every] == [("# A lab\n\ntext", False), ("x = 1\n\nprint(x)", True)]
    assert labs.page(every) == "# A lab\n\ntext\n\n    x = 1\n\n    print(x)\n"
    assert [cell["cell_type"] for cell in labs.notebook(every)["cells"]] == ["markdown", "code"]
    with pytest.raises(ValueError, match="behind #"):
        labs.cells("# %% [markdown]\nno comment\n")
    with pytest.raises(ValueError, match="begins with a cell"):
        labs.cells("print(1)\n")


def test_the_cells_of_a_lab_run_from_top_to_bottom() -> None:
    source = ROOT / "docs" / "labs" / "pipeline.py"
    done = subprocess.run([sys.executable, str(source)], capture_output=True, text=True, cwd=ROOT, timeout=600)
    assert done.returncode == 0, done.stderr
    assert " 8 micro-batches: 27% of the time is waiting" in done.stdout


@pytest.mark.slow
@pytest.mark.skipif(not KERNEL, reason="no kernel here: pip install nbclient nbformat ipykernel")
@pytest.mark.parametrize("source", LABS, ids=lambda path: path.stem)
def test_every_notebook_runs_in_a_real_kernel(source: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    made = nbformat.read(source.with_suffix(".ipynb"), as_version=4)
    nbformat.validate(made)
    os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    NotebookClient(made, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(ROOT)}}).execute()
    printed = ["".join(output.get("text", "") for output in cell.outputs) for cell in made.cells if "outputs" in cell]
    assert len(printed) == 2
    assert "largest relative difference to one process" in printed[0]
    assert printed[1]
