"""Compiled code of one number format is never loaded in another, also where torch's own cache key would allow it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from conftest import SCRIPTS, environment
from practices.changed import run_with

from vivace.measure.inside.comparing import compile_cache

PULL_REQUEST = "https://github.com/pytorch/pytorch/pull/181564"


def trained_without_vivace(dtype: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / "compiled_autocast.py"), dtype, "--old-key"],
        env=environment(TORCHINDUCTOR_CACHE_DIR=str(folder)), capture_output=True, text=True, timeout=600, check=True,
    )  # fmt: skip
    return done.stderr


def test_a_measurement_is_right_where_the_cache_holds_code_of_another_dtype(measure: Callable, tmp_path: Path):
    folder = tmp_path / "cache"
    assert "products in float16" in trained_without_vivace("float16", folder)
    assert "products in float16" in trained_without_vivace("bfloat16", folder)  # the fault itself
    done = measure(
        "compiled_autocast.py", "bfloat16", "--old-key", "--steps", "50",
        options=("--steps", "3", "--warmup", "1"), TORCHINDUCTOR_CACHE_DIR=str(folder),
    )  # fmt: skip
    assert "products in bfloat16" in done.err
    assert any(PULL_REQUEST in note for note in done.record["notes"])


def test_a_measurement_leaves_nothing_behind_that_another_dtype_would_load(measure: Callable, tmp_path: Path):
    folder = tmp_path / "cache"
    measured = measure(
        "compiled_autocast.py", "bfloat16", "--old-key", "--steps", "50",
        options=("--steps", "3", "--warmup", "1"), TORCHINDUCTOR_CACHE_DIR=str(folder),
    )  # fmt: skip
    assert "products in bfloat16" in measured.err
    assert "products in float16" in trained_without_vivace("float16", folder)


class OldDetails:
    def __init__(self, graph: str) -> None:
        self.graph, self.disable_amp = graph, torch.is_autocast_enabled("cpu")


class NewDetails(OldDetails):
    def __init__(self, graph: str) -> None:
        super().__init__(graph)
        self.autocast_state = {"cpu": torch.bfloat16}


def module_with(kind: type) -> types.SimpleNamespace:
    """A new class each time: it is changed."""
    return types.SimpleNamespace(AOTAutogradCacheDetails=type(kind.__name__, (kind,), {"__init__": kind.__init__}))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_dtype_joins_the_key_where_torch_leaves_it_out(dtype: torch.dtype):
    module = module_with(OldDetails)
    compile_cache.add_autocast_to_key(module)
    compile_cache.add_autocast_to_key(module)  # once is enough
    with torch.autocast("cpu", dtype=dtype):
        details = module.AOTAutogradCacheDetails("graph")
    assert vars(details) == {"graph": "graph", "disable_amp": True, "autocast_state": {"cpu": str(dtype)}}


def test_without_autocast_the_key_is_torchs_own():
    module = module_with(OldDetails)
    compile_cache.add_autocast_to_key(module)
    assert vars(module.AOTAutogradCacheDetails("graph")) == {"graph": "graph", "disable_amp": False}


def test_a_torch_that_has_the_dtype_in_its_key_is_left_alone():
    module = module_with(NewDetails)
    compile_cache.add_autocast_to_key(module)
    with torch.autocast("cpu", dtype=torch.float16):
        assert module.AOTAutogradCacheDetails("graph").autocast_state == {"cpu": torch.bfloat16}


def test_asking_for_the_module_does_not_import_it_and_importing_it_is_still_seen(tmp_path: Path):
    script = (
        "import sys, importlib.util, torch\n"
        "from vivace.measure.inside.comparing import compile_cache as ours\n"
        "ours._MODULE = 'late'\n"
        "ours.install(); ours.install()\n"
        "assert importlib.util.find_spec('late') and 'late' not in sys.modules\n"
        "import late\n"
        "assert late.AOTAutogradCacheDetails.__init__._of_vivace\n"
        "assert not any(type(finder) is ours._WhenImported for finder in sys.meta_path)\n"
    )
    (tmp_path / "late.py").write_text("class AOTAutogradCacheDetails:\n    pass\n")
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=environment(), check=True, timeout=600)


def test_it_is_there_where_practices_are_applied_and_nothing_is_measured(tmp_path: Path):
    script = (
        "import json, sys, torch\n"
        "print(json.dumps([type(finder).__module__ for finder in sys.meta_path if 'WhenImported' in str(finder)]))\n"
    )
    assert run_with(script, ["bf16"], tmp_path).printed == ["vivace.measure.inside.comparing.compile_cache"]


def test_this_torch_has_the_class_whose_objects_are_the_key():
    """Else nothing is changed, and nobody would notice."""
    spec = importlib.util.find_spec("torch._functorch._aot_autograd.autograd_cache")
    assert spec is not None
    assert spec.origin is not None
    assert "class AOTAutogradCacheDetails(" in Path(spec.origin).read_text()
