"""Prints every name of torch that vivace uses inside a training process and this torch does not have.

``python names.py VIVACE_FOLDER``. A name that its file asks for first (``hasattr``, ``getattr``) is not printed.
"""

import ast
import importlib
import sys
from pathlib import Path

INSIDE = ("measure/inside", "practices", "scale", "preemption", "distributed.py", "measure/chronometer.py")


def used_names(tree):
    """Dotted names of torch: attributes, and what is imported from it."""
    known = {"torch": "torch"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            known.update({alias.asname: alias.name for alias in node.names if alias.asname})
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "torch":
            for alias in node.names:
                known[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                yield f"{node.module}.{alias.name}"
    for node in ast.walk(tree):
        parts = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if parts and isinstance(node, ast.Name) and known.get(node.id, "").partition(".")[0] == "torch":
            yield ".".join([known[node.id], *reversed(parts)])


def asked_for(tree):
    """Names in strings that the file gives to hasattr or getattr."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("hasattr", "getattr"):
            yield from (word.value for word in node.args if isinstance(word, ast.Constant))


def exists(name):
    parts = name.split(".")
    found = importlib.import_module(parts[0])
    for end, part in enumerate(parts[1:], 2):
        if not hasattr(found, part):
            try:
                found = importlib.import_module(".".join(parts[:end]))
            except ImportError:
                return False
        else:
            found = getattr(found, part)
    return True


root = Path(sys.argv[1])
files = [
    path for place in INSIDE for path in ([root / place] if place.endswith(".py") else (root / place).rglob("*.py"))
]
missing, looked_at = set(), set()
for file in files:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    guarded = set(asked_for(tree))
    names = {name for name in used_names(tree) if not guarded & set(name.split("."))}
    looked_at |= names
    missing |= {f"{name} ({file.relative_to(root)})" for name in names if not exists(name)}
print(len(looked_at))
print("\n".join(sorted(missing)))
