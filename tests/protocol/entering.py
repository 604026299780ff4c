"""Which modules of vivace can enter the user's process: what its entry points import, at any depth."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
BOOTSTRAP = ROOT / "vivace" / "measure" / "bootstrap" / "sitecustomize.py"
# The bootstrap calls the door, which imports practices by their names; scripts import the last four themselves.
ENTRIES = (
    "vivace.door",
    *(f"vivace.practices.{path.stem}" for path in (ROOT / "vivace" / "practices").glob("*.py")),
    "vivace.preemption",
    "vivace.checkpoint",
    "vivace.checkpoint.safetensors",
    "vivace.distributed",
)


def modules() -> dict[str, Path]:
    """The modules of vivace that can enter, by name."""
    found: dict[str, Path] = {}
    waiting = list(ENTRIES)
    while waiting:
        name = waiting.pop()
        path = _path_of(name)
        if name in found or path is None:
            continue
        found[name] = path
        for imported in imports(path):
            parts = imported.split(".")
            if parts[0] == "vivace":  # a package is imported before what is in it
                waiting += [".".join(parts[:end]) for end in range(1, len(parts) + 1)]
    return found


def imports(path: Path) -> set[str]:
    """Every name that the file may import when it runs, in functions too. ``from a import b`` counts as a and a.b."""
    names: set[str] = set()
    for node in nodes_that_run(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def nodes_that_run(tree: ast.AST) -> Iterator[ast.AST]:
    """As ``ast.walk``, without what only a type checker reads."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            waiting += node.orelse
        else:
            yield node
            waiting += ast.iter_child_nodes(node)


def _path_of(name: str) -> Path | None:
    base = ROOT.joinpath(*name.split("."))
    return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()), None)
