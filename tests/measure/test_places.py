"""Whose code is a line? Wherever our modules lie in the package, they are never taken for the user's."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import vivace
from vivace.measure.inside.places import is_library

PACKAGE = Path(vivace.__file__).parent


@pytest.mark.parametrize("folder", ["measure/inside", "practices"])
def test_every_module_that_runs_in_the_process_is_ours(folder: str):
    modules = sorted((PACKAGE / folder).rglob("*.py"))
    assert len(modules) > 20
    assert [str(path) for path in modules if not is_library(str(path))] == []


def test_torch_is_known_and_a_script_is_the_users(tmp_path: Path):
    assert is_library(torch.nn.modules.linear.__file__)
    assert not is_library(str(tmp_path / "train.py"))
