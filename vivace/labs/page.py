"""The page and the notebook of a lab, from the same header and cells."""

from __future__ import annotations

import json
import re
from typing import Any

from vivace.labs.catalogue import Lab
from vivace.labs.cells import Cell
from vivace.labs.header import Header, Need

__all__ = ["needed", "notebook", "page", "without_local_links"]

_LOCAL_LINK = re.compile(r"!?\[(?P<text>[^\]]*)\]\((?!https?:)[^)]*\)")
_NEED_WORDS = {
    Need.TORCH: "torch", Need.DATA: "Pillow and pyarrow", Need.VISION: "torchvision", Need.TEXT: "transformers",
    Need.HPO: "Optuna", Need.RAY: "Ray", Need.JAX: "JAX", Need.GPU: "a GPU", Need.GPUS: "several GPUs",
    Need.SLURM: "Slurm",
}  # fmt: skip


def needed(needs: tuple[Need, ...]) -> str:
    """
    >>> needed((Need.TORCH, Need.GPU))
    'torch, a GPU'
    """
    return ", ".join(_NEED_WORDS[need] for need in needs) or "nothing"


def page(lab: Lab) -> str:
    """Markdown. Its links are those of ``docs/labs``."""
    parts = [_indented(cell.text) if cell.is_code else cell.text for cell in _with_header(lab)]
    return "\n\n".join(parts) + "\n"


def without_local_links(markdown: str) -> str:
    """For a terminal, where a link to a file of the repository leads nowhere.

    >>> without_local_links("see [docs](../find.md) and [arXiv](https://arxiv.org/x)")
    'see docs and [arXiv](https://arxiv.org/x)'
    """
    return _LOCAL_LINK.sub(lambda link: link["text"], markdown)


def notebook(lab: Lab) -> str:
    """JSON of version 4.5 of the format, without outputs: they come when it is run."""
    content = {
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "cells": [_notebook_cell(number, cell) for number, cell in enumerate(_with_header(lab))],
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _with_header(lab: Lab) -> list[Cell]:
    return [Cell(_opening(lab), False), *lab.cells, Cell(_closing(lab.header), False)]


def _opening(lab: Lab) -> str:
    header = lab.header
    needs = f"Needs {needed(header.needs)}"
    if header.full_needs:
        needs += f"; at full size also {needed(header.full_needs)}"
    return "\n\n".join([
        f"# Lab: {header.title}",
        f"Day {header.day}. {needs}. The small form takes about {header.about_s} s on two CPU cores.",
        f"**Goal.** {header.goal.strip()}",
        f"**Predict first.** {header.predict.strip()}",
        f"    vivace lab run {lab.name} --small      # seconds, on a CPU\n    vivace lab run {lab.name}",
        *([header.without.strip()] if header.without else []),
    ])  # fmt: skip


def _closing(header: Header) -> str:
    parts = [f"**Compare.** {header.compare.strip()}", f"**What you see.** {header.see.strip()}"]
    parts.append(f"**On other hardware.** {header.hardware.strip()}")
    if header.commands:
        parts.append("**Go on** at full size, or on your own script:")
        parts.append("\n".join(f"    {command}" for command in header.commands))
    return "\n\n".join(parts)


def _indented(code: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in code.splitlines())


def _notebook_cell(number: int, cell: Cell) -> dict[str, Any]:
    common = {"id": f"cell-{number}", "metadata": {}, "source": cell.text.splitlines(keepends=True)}
    if cell.is_code:
        return {"cell_type": "code", "execution_count": None, "outputs": [], **common}
    return {"cell_type": "markdown", **common}
