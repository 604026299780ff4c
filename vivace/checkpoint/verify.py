"""Is a checkpoint what was saved? Every byte is read, the work shared by the ranks; all ranks come to one answer."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from pathlib import Path

from vivace.checkpoint.errors import Damage, Damaged, DamageKind, Refused, RefusedError
from vivace.checkpoint.manifest import Complete, RankManifest, read_complete, read_manifest
from vivace.checkpoint.names import INDEX, manifest_name, state_name
from vivace.checkpoint.ranks import Ranks
from vivace.checkpoint.sums import FileSum, sum_of_bytes, sum_of_file

__all__ = ["Outline", "looks_whole", "outline_of", "verify"]


@dataclass(frozen=True)
class Outline:
    """What a checkpoint says it is; its own words have been checked, its files not yet."""

    folder: Path
    complete: Complete
    files: dict[str, FileSum]
    index: bytes

    @property
    def sizes(self) -> dict[str, int]:
        return {name: file.bytes for name, file in self.files.items()}


def verify(folder: Path, ranks: Ranks) -> Outline:
    """Raises ``Damaged`` on all ranks alike, or ``RefusedError`` where they do not see the same files."""
    outline = ranks.from_first(_attempt_outline(folder) if ranks.is_first else None)
    if isinstance(outline, Exception):
        raise outline
    mine = _share(list(outline.files.values()), ranks.rank, ranks.world)
    found = [damage for file in mine if (damage := _compare(folder, file)) is not None]
    everyones = ranks.from_all(found)
    if not any(everyones):
        return outline
    verdict = ranks.from_first(_second_look(folder, outline, everyones) if ranks.is_first else None)
    raise verdict


def outline_of(folder: Path) -> Outline:
    """Reads the marker, the manifests and the index. Raises ``Damaged``, ``OSError``."""
    complete = read_complete(folder)
    sums = {file.name: file for file in complete.files}
    manifests = [_manifest(folder, sums, rank, complete) for rank in range(complete.world_size)]
    index = (folder / INDEX).read_bytes()
    if INDEX not in sums or sum_of_bytes(INDEX, index) != sums[INDEX]:
        raise Damaged(Damage(DamageKind.INDEX, INDEX, "is not what was written"))
    files = {file.name: file for manifest in manifests for file in manifest.files}
    for rank in range(complete.world_size):
        if state_name(rank) not in files:
            raise Damaged(Damage(DamageKind.MANIFEST, manifest_name(rank), f"does not name {state_name(rank)}"))
    return Outline(folder, complete, files, index)


def looks_whole(folder: Path) -> bool:
    """A quick look, for what may be deleted: the marker, the manifests and all sizes, without reading the data."""
    try:
        return all((folder / file.name).stat().st_size == file.bytes for file in outline_of(folder).files.values())
    except (Damaged, OSError):
        return False


def _attempt_outline(folder: Path) -> Outline | Exception:
    try:
        return outline_of(folder)
    except Damaged as error:
        return error
    except OSError as error:
        name = Path(error.filename).name if error.filename else folder.name
        return _of_system(error, folder / name)


def _manifest(folder: Path, sums: dict[str, FileSum], rank: int, complete: Complete) -> RankManifest:
    name = manifest_name(rank)
    if name not in sums:
        raise Damaged(Damage(DamageKind.MARKER, name, "is not in the marker"))
    manifest = read_manifest(folder, sums[name])
    if (manifest.save_id, manifest.step, manifest.rank) != (complete.save_id, complete.step, rank):
        raise Damaged(Damage(DamageKind.MIXTURE, name, f"is of another save (step {manifest.step})"))
    return manifest


def _share(files: list[FileSum], rank: int, world: int) -> list[FileSum]:
    """Large ones first, dealt out in turn."""
    return sorted(files, key=lambda file: (-file.bytes, file.name))[rank::world]


def _compare(folder: Path, expected: FileSum) -> Damage | None:
    path = folder / expected.name
    try:
        size = path.stat().st_size
        if size != expected.bytes:
            return Damage(DamageKind.SIZE, expected.name, f"has {size:,} bytes, and {expected.bytes:,} were written")
        if sum_of_file(path) != expected:
            return Damage(DamageKind.SUM, expected.name, "has another checksum than what was written")
    except OSError as error:
        found = _of_system(error, path)
        return found.damage if isinstance(found, Damaged) else Damage(DamageKind.UNREADABLE, expected.name, str(found))
    return None


def _of_system(error: OSError, path: Path) -> Damaged | RefusedError:
    """What is not there or cannot be read from the disk is damage. What we may not read is not."""
    if isinstance(error, FileNotFoundError):
        return Damaged(Damage(DamageKind.MISSING, path.name, "is missing"))
    if error.errno == errno.EIO:
        return Damaged(Damage(DamageKind.UNREADABLE, path.name, "cannot be read: input/output error"))
    return RefusedError(Refused.NO_ACCESS, f"{path} cannot be read: {error.strerror or error}", (path,))


def _second_look(folder: Path, outline: Outline, everyones: list[list[Damage]]) -> Exception:
    """The first rank checks what another one found: a disk that is not shared is no damage."""
    rank, damage = next((rank, found[0]) for rank, found in enumerate(everyones) if found)
    again = _compare(folder, outline.files[damage.file])
    if again is None:
        text = f"rank {rank} finds that {damage}, and rank 0 does not: {folder} must be the same folder on all nodes"
        return RefusedError(Refused.NOT_SHARED, text, (folder / damage.file,))
    if again.kind is DamageKind.UNREADABLE:
        return RefusedError(Refused.NO_ACCESS, again.text, (folder / damage.file,))
    return Damaged(again)
