"""What can enter the user's process runs on Python 3.9 with torch and the standard library alone."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from protocol import entering

OLDEST = (3, 9)
# torch is the user's; pynvml is borrowed from vivace's environment; IPython and the launchers are asked only if there.
MAY_BE_IMPORTED = {"torch", "pynvml"}

CHECK = """
import importlib, pkgutil, sys
import vivace.protocol
for module in pkgutil.iter_modules(vivace.protocol.__path__):
    importlib.import_module(f"vivace.protocol.{module.name}")
from vivace.protocol.answers import NOT_MET, answers_from_text, answers_to_text
from vivace.protocol.ending import TIME_OVER, Ended
from vivace.protocol.gpu_names import KnownGpu
from vivace.protocol.payload import Payload
from vivace.protocol.progress import SeenProgress
from vivace.protocol.request import Entry, ProcessRequest
request = ProcessRequest("x", entry=Entry.PRACTICES, practices=("bf16",), known_gpus=(KnownGpu(("a",), ("b*",)),))
assert ProcessRequest.from_text(request.to_text()) == request
assert Ended.from_text(TIME_OVER.to_text()) == TIME_OVER
assert answers_from_text(answers_to_text({"bf16": NOT_MET})) == {"bf16": NOT_MET}
assert SeenProgress.from_text(SeenProgress(1, "measuring", 2, None, 3).to_text()).steps == 3
assert '"total_steps": 5' in Payload(total_steps=5).to_text()
for path in sys.argv[1:]:
    compile(open(path, encoding="utf-8").read(), path, "exec")
print(sys.version_info[:2], f"{Entry.PRACTICES}")
"""


def older_python() -> str | None:
    installed = (str(path) for path in Path.home().glob(".pyenv/versions/3.9.*/bin/python3.9"))
    return next(installed, None) or shutil.which("python3.9")


def paths() -> list[Path]:
    return [entering.BOOTSTRAP, *sorted(entering.modules().values())]


def test_what_can_enter_is_found():
    found = entering.modules()
    assert {"vivace", "vivace.door", "vivace.practices.bf16", "vivace.practices.engine.parts"} <= found.keys()
    assert {"vivace.measure.inside.patches.loaders", "vivace.protocol.payload", "vivace.errors"} <= found.keys()
    assert not [name for name in found if name.startswith(("vivace.records", "vivace.cli", "vivace.tune"))]


def test_nothing_else_is_imported():
    top = {(name.partition(".")[0], path.name) for path in paths() for name in entering.imports(path)}
    foreign = {(name, path) for name, path in top if name not in sys.stdlib_module_names | {"vivace"}}
    assert {name for name, _path in foreign} <= MAY_BE_IMPORTED, foreign


@pytest.mark.parametrize("path", paths(), ids=lambda path: str(path.relative_to(entering.ROOT)))
def test_the_syntax_is_that_of_python_3_9(path: Path):
    tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=OLDEST)
    assert list(unions_of_types(tree)) == []
    assert list(new_statements(tree)) == []


def unions_of_types(tree: ast.AST) -> Iterator[str]:
    """``isinstance(x, A | B)`` and ``Alias = dict[str, int | None]``: evaluated, so Python 3.10 and later only."""
    for node in entering.nodes_that_run(tree):
        kinds: list[ast.AST] = []
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id.startswith(("isins", "issub"))
        ):
            kinds = list(node.args[1:])
        elif isinstance(node, ast.Assign):
            kinds = [node.value] if isinstance(node.value, (ast.Subscript, ast.BinOp)) else []
        for kind in kinds:
            yield from (ast.unparse(part) for part in ast.walk(kind) if _is_union(part))


def _is_union(node: ast.AST) -> bool:
    """Of two types, as far as their names tell: flags are combined with | too."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.BitOr):
        return False
    return any(_looks_like_a_type(side) for side in (node.left, node.right))


def _looks_like_a_type(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return node.value is None
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return name in {"int", "str", "float", "bool", "bytes", "dict", "list", "tuple"} or (
        name[:1].isupper() and not name.isupper()
    )


def new_statements(tree: ast.AST) -> Iterator[str]:
    """``ast.parse`` lets some of them through."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Match, ast.TryStar)):
            yield ast.unparse(node)


@pytest.mark.parametrize(
    ("code", "caught"),
    [
        ("isinstance(x, int | None)", ["int | None"]),
        ("Sizes = dict[str, float | int]", ["float | int"]),
        ("flags = re.IGNORECASE | re.DOTALL", []),
        ("def f(x: int | None) -> str | None: ...", []),
    ],
)
def test_unions_are_told_from_flags(code: str, caught: list[str]):
    assert list(unions_of_types(ast.parse(code))) == caught


def test_the_library_is_that_of_python_3_9():
    """By vermin, which knows since when Python has which module, function and keyword."""
    pytest.importorskip("vermin", reason="vermin is not installed: pip install -e '.[dev]'")
    words = ["-c", "import vermin; vermin.main()", "-t=3.9-", "--no-tips", "--violations"]
    done = subprocess.run([sys.executable, *words, *map(str, paths())], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout


@pytest.mark.skipif(older_python() is None, reason="no Python 3.9 here")
def test_the_protocol_runs_and_all_compiles_on_python_3_9():
    done = subprocess.run(
        [str(older_python()), "-c", CHECK, *map(str, paths())],
        env={**os.environ, "PYTHONPATH": str(entering.ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert (done.stdout, done.stderr) == ("(3, 9) practices\n", "")
