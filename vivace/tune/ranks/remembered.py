"""A command that was proved on ranks is not proved again, as long as nothing that could matter has changed.

What matters: the words of the command, the files that it names, the Python files beside its script, the way it is
split, the practices, the number of ranks, the devices, and vivace's own version. Kept in ``.proved`` beside the runs.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from vivace import __version__
from vivace.records.base import RecordError
from vivace.records.equality import Equality, EqualityVerdict
from vivace.tune.same_job import this_job

__all__ = ["key_of", "recall", "remember"]

FOLDER = ".proved"
_MOST_FILES = 1000
_LARGEST_BYTES = 2**20


def key_of(command: Sequence[str], words: Sequence[str], ranks: int) -> str:
    job = this_job(command)
    beside = {str(path): _sha256(path) for path in _own_code(command)}
    known = [__version__, list(command), list(words), ranks, job.directory, job.files, job.gpus, beside]
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:32]


def recall(runs: Path, key: str) -> Equality | None:
    """The proof of an earlier run, where it found both sides equal."""
    with contextlib.suppress(RecordError):
        known = Equality.load(runs / FOLDER / f"{key}.json")
        return known if known.verdict is EqualityVerdict.EQUAL else None
    return None


def remember(runs: Path, key: str, equality: Equality) -> None:
    with contextlib.suppress(OSError):  # a full disk: it is proved again the next time
        (runs / FOLDER).mkdir(parents=True, exist_ok=True)
        equality.save(runs / FOLDER / f"{key}.json")


def _own_code(command: Sequence[str]) -> Iterator[Path]:
    """The Python files in and below the script's folder; of ``python -m`` those of the working folder."""
    script = next((Path(word) for word in command if word.endswith(".py") and Path(word).is_file()), None)
    root = script.resolve().parent if script is not None else Path.cwd()
    return itertools.islice(_python_files(root), _MOST_FILES)


def _python_files(folder: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        entries = sorted(folder.iterdir())
        yield from (path for path in entries if path.suffix == ".py" and path.is_file())
        for path in entries:
            own = not path.name.startswith(".") and path.name not in ("node_modules", "site-packages", "__pycache__")
            if path.is_dir() and not path.is_symlink() and own and not (path / "pyvenv.cfg").exists():
                yield from _python_files(path)


def _sha256(path: Path) -> str:
    with contextlib.suppress(OSError):
        if path.stat().st_size <= _LARGEST_BYTES:
            return hashlib.sha256(path.read_bytes()).hexdigest()
    return ""
