"""``--in-copy``: the command runs in a copy of its folder, so that what it writes there does not reach the original.

Files are really copied: a link would let an ``open(…, "w")`` through. What the command only reads, and is too large to
copy, is linked when the user names it (``--link``), and so are virtual environments. Only relative paths lead into the
copy: whatever the command names by an absolute path is read and written where it is.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from vivace.errors import UserError
from vivace.measure.written_files import not_the_users

__all__ = ["CopyOptions", "copied_folder", "own_folder", "point_at_the_original"]

_GIB = 2**30
LARGEST_GIB = 4.0
_MOST_FILES = 100_000
_NAMED = 3


@dataclass(frozen=True)
class CopyOptions:
    """``links``: files and folders, relative to the command's folder, that are linked instead of copied."""

    links: tuple[str, ...] = ()
    keep: bool = False


@contextlib.contextmanager
def copied_folder(source: Path, run_folder: Path, options: CopyOptions) -> Iterator[Path]:
    """A copy of ``source`` in ``run_folder``; deleted afterwards, unless it is to be kept."""
    target = run_folder.resolve() / "copy"
    links = {_inside(source, link) for link in options.links}
    left_out = own_folder(source, run_folder)
    plan = _plan(source.resolve(), left_out, links)
    _refuse_too_large(plan, target)
    try:
        _copy(plan, source.resolve(), target)
        yield target
    finally:
        if not options.keep:
            shutil.rmtree(target, ignore_errors=True)


def _inside(source: Path, link: str) -> str:
    path = os.path.normpath(link)
    if os.path.isabs(path) or path.startswith("..") or path == ".":
        raise UserError(f"--link {link}: not a path inside {source}", hint="--link data")
    if not (source / path).exists():
        raise UserError(f"--link {link}: there is no such file or folder in {source}")
    return path


def own_folder(source: Path, run_folder: Path) -> Path:
    """What lies in ``source`` and is vivace's: ``runs``, with all that earlier runs have left there."""
    source, run_folder = source.resolve(), run_folder.resolve()
    if run_folder.is_relative_to(source) and run_folder != source:
        return source / run_folder.relative_to(source).parts[0]
    return run_folder


@dataclass
class _Plan:
    folders: list[str]
    files: list[str]
    links: dict[str, str]  # path → where it leads
    sizes: dict[str, int]  # of what lies directly in the folder, in bytes


def _plan(source: Path, left_out: Path, links: set[str]) -> _Plan:
    plan = _Plan([], [], {}, {})
    for folder, names, files in os.walk(source):
        inside = os.path.relpath(folder, source)
        for name in list(names):
            path = os.path.normpath(os.path.join(inside, name))
            whole = os.path.join(folder, name)
            if os.path.islink(whole) or path in links or os.path.exists(os.path.join(whole, "pyvenv.cfg")):
                plan.links[path] = _leads_to(whole, source)
            elif not not_the_users(whole) and Path(whole) != left_out:
                plan.folders.append(path)
                continue
            names.remove(name)
        for name in files:
            path = os.path.normpath(os.path.join(inside, name))
            whole = os.path.join(folder, name)
            if os.path.islink(whole) or path in links:
                plan.links[path] = _leads_to(whole, source)
            elif os.path.isfile(whole):  # no sockets, no pipes
                plan.files.append(path)
                top = path.split(os.sep)[0]
                plan.sizes[top] = plan.sizes.get(top, 0) + os.path.getsize(whole)
    return plan


def _leads_to(path: str, source: Path) -> str:
    """A link inside the folder stays one inside the copy; every other leads to the same place as before."""
    if not os.path.islink(path):
        return path
    target = os.readlink(path)
    leads_inside = Path(os.path.realpath(path)).is_relative_to(source)
    if os.path.isabs(target) or leads_inside:
        return target
    return os.path.realpath(path)


def _refuse_too_large(plan: _Plan, target: Path) -> None:
    size = sum(plan.sizes.values())
    largest = sorted(plan.sizes.items(), key=lambda item: -item[1])[:_NAMED]
    named = ", ".join(f"{name} {count / _GIB:.2f} GiB" for name, count in largest)
    if size > LARGEST_GIB * _GIB or len(plan.files) > _MOST_FILES:
        raise UserError(
            f"--in-copy would copy {len(plan.files):,} files of {size / _GIB:.1f} GiB ({named}), and copies at most "
            f"{_MOST_FILES:,} of {LARGEST_GIB:g} GiB",
            hint="--link NAME for each file or folder that the command only reads",
        )
    room = shutil.disk_usage(target.parent).free
    if size > room:
        raise UserError(
            f"--in-copy needs {size / _GIB:.1f} GiB in {target.parent}, where {room / _GIB:.1f} GiB are free",
            hint="--output FOLDER on a larger disk",
        )


def _copy(plan: _Plan, source: Path, target: Path) -> None:
    try:
        target.mkdir(parents=True)
        for path in plan.folders:
            (target / path).mkdir(exist_ok=True)
        for path in plan.files:
            shutil.copy2(source / path, target / path)
        for path, leads_to in plan.links.items():
            os.symlink(leads_to, target / path)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise UserError(f"--in-copy: {source} cannot be copied: {error.strerror or error}{where}") from None


def point_at_the_original(payloads: Sequence[Path], copy: Path, source: Path) -> None:
    """In what the processes wrote, the original's paths for the copy's: findings name lines that the user can open."""
    in_copy, in_source = (json.dumps(str(path))[1:-1] for path in (copy, source.resolve()))
    for path in payloads:
        with contextlib.suppress(OSError):
            path.write_text(path.read_text().replace(in_copy, in_source))
