"""Environments with one release of torch and of Python each, and one with vivace alone."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

__all__ = ["MATRIX", "Cell", "NoPython", "make_cell", "make_vivace", "run_checked"]

ROOT = Path(__file__).parents[2]
VIVACE_PYTHON = "3.11"
_INSTALL_S = 3600
# torch.compile of older releases imports setuptools and does not ask for it: older venvs bring it, those of uv do not.
_BESIDE = ("setuptools",)


@dataclass(frozen=True)
class Cell:
    """A release of torch on a release of Python. ``without_numpy``: torch itself does not need it."""

    torch: str
    python: str
    without_numpy: bool = False

    @property
    def name(self) -> str:
        return f"t{self.torch}-py{self.python}"

    @classmethod
    def parse(cls, text: str) -> Cell:
        """
        >>> Cell.parse("2.4.0/3.9").name
        't2.4.0-py3.9'
        """
        torch, slash, python = text.partition("/")
        if not slash:
            raise ValueError(f"{text!r} is not TORCH/PYTHON, such as 2.4.0/3.9")
        return cls(torch, python)


# Every Python that can be had, and four releases of torch: the oldest that is supported, the newest, and two between.
MATRIX = (
    Cell("2.4.0", "3.9"),
    Cell("2.6.0", "3.11"),
    Cell("2.6.0", "3.13"),
    Cell("2.9.0", "3.10"),
    Cell("2.15.0", "3.12"),
    Cell("2.15.0", "3.13"),
)


class NoPython(Exception):
    """This release of Python is not on this machine."""


def make_cell(cell: Cell, folder: Path, reuse: bool) -> Path:
    """Its Python. Installs torch unless ``reuse`` and it is there already."""
    place = folder / cell.name
    python = place / "bin" / "python"
    if not (reuse and python.exists()):
        shutil.rmtree(place, ignore_errors=True)
        _make_environment(find_python(cell.python), place)
        _install(python, f"torch=={cell.torch}", *_BESIDE, *([] if cell.without_numpy else ["numpy"]))
    found = run_checked([str(python), "-c", "import torch; print(torch.__version__)"]).strip()
    if found.partition("+")[0] != cell.torch:
        raise RuntimeError(f"{place} has torch {found}, not {cell.torch}; run without --reuse")
    return python


def make_vivace(folder: Path) -> Path:
    """vivace as a user installs it, from this checkout; always anew. Returns its command."""
    place = folder / "vivace"
    shutil.rmtree(place, ignore_errors=True)
    _make_environment(find_python(VIVACE_PYTHON), place)
    python = place / "bin" / "python"
    _install(python, str(ROOT))
    has = run_checked([str(python), "-c", "import importlib.util as u; print(u.find_spec('torch') is not None)"])
    if has.strip() != "False":
        raise RuntimeError("installing vivace has installed torch")
    return place / "bin" / "vivace"


def find_python(version: str) -> Path:
    """Of pyenv, or on the path."""
    known = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"))
    on_path = shutil.which(f"python{version}")
    if known:
        return known[-1]
    if on_path is None:
        raise NoPython(f"no Python {version} here")
    return Path(on_path)


def _make_environment(python: Path, place: Path) -> None:
    uv = shutil.which("uv")
    run_checked([uv, "venv", "-q", "-p", str(python), str(place)] if uv else [str(python), "-m", "venv", str(place)])


def _install(python: Path, *what: str) -> None:
    """With uv where it is there: it links files from its cache, so that environments share CUDA's libraries."""
    uv = shutil.which("uv")
    words = [uv, "pip", "install", "-q", "--python", str(python)] if uv else [str(python), "-m", "pip", "install", "-q"]
    run_checked([*words, *what], _INSTALL_S)


def run_checked(words: list[str], timeout_s: float = 300) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=timeout_s, env=clean_environment())
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()[-2000:]}")
    return done.stdout


def clean_environment() -> dict[str, str]:
    """Without what would lend one environment's packages to another."""
    left_out = ("PYTHON", "VIRTUAL_ENV", "VIVACE_", "SLURM_", "RANK", "WORLD_SIZE", "LOCAL_RANK")
    return {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
