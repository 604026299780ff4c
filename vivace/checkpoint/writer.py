"""DCP's writer, kept to the contract: a new folder, sums while writing, and a marker that comes last.

DCP calls it in this order, on every rank unless said otherwise: ``set_up_storage_writer``, ``prepare_local_plan``,
``prepare_global_plan`` (first rank), ``write_data``, and ``finish`` (first rank, once all ranks have written without an
error). An error on any rank reaches all of them as one exception.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from enum import Enum
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint import DefaultSavePlanner, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem, WriteItemType
from torch.distributed.checkpoint.storage import WriteResult

from vivace.checkpoint.manifest import Complete, RankManifest
from vivace.checkpoint.names import COMPLETE, INDEX, final_names, manifest_name, state_name, temporary_name, trash_name
from vivace.checkpoint.owner import write_owner
from vivace.checkpoint.plain import to_bytes
from vivace.checkpoint.scan import next_sequence
from vivace.checkpoint.space import need_room
from vivace.checkpoint.sums import FileSum, SummingFile, sum_of_file
from vivace.preemption.durable import flush_folder, write_durably

__all__ = ["CarefulSavePlanner", "ContractWriter", "Phase", "Save"]


class Phase(Enum):
    """The moments of a save, as its rank passes them. A kill at any of them leaves the checkpoints before it whole."""

    BEGIN = "begin"
    PLANNED = "planned"
    WRITING = "writing"
    """The first bytes of the rank's tensors are written."""
    WRITTEN = "written"
    MANIFEST = "manifest"
    """The rank's manifest is on disk."""
    INDEX = "index"
    """From here on the first rank only: all ranks have reported, the index is on disk."""
    RENAMED = "renamed"
    COMPLETE = "complete"


@dataclass
class Save:
    """One save, as its writer and the store know it. ``folder`` is where it ends up, once it is complete."""

    root: Path
    step: int
    rank: int
    world: int
    save_id: str
    train_state: bytes
    metrics: dict[str, float] = field(default_factory=dict)
    on_phase: Callable[[Phase], None] = lambda _phase: None
    folder: Path | None = None

    @property
    def temporary(self) -> Path:
        return self.root / temporary_name(self.step, self.save_id)


class ContractWriter(FileSystemWriter):
    """For one save. ``threads``: how many files a rank writes at the same time."""

    def __init__(self, save: Save, threads: int = 1) -> None:
        super().__init__(save.temporary, sync_files=False, thread_count=threads)  # our files sync themselves
        self.save = save
        self._sums: dict[str, FileSum] = {}
        self._open: list[SummingFile] = []
        self._began = False
        self.fs: Any = self.fs
        self.fs.create_stream = self._stream

    def storage_meta(self) -> StorageMeta:
        """Without the path: a checkpoint may be moved, and the index has no pickled path to be let in again."""
        return StorageMeta(save_id=self.save.save_id)

    def set_up_storage_writer(self, is_coordinator: bool, *more: Any, **options: Any) -> None:
        super().set_up_storage_writer(is_coordinator, *more, **options)  # what DCP gives differs between releases
        self.save.temporary.mkdir(parents=True, exist_ok=True)
        if is_coordinator:
            write_owner(self.save.temporary)
        self.save.on_phase(Phase.BEGIN)

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        need_room(self.save.root, sum(_bytes_of(item) for plan in plans for item in plan.items))
        return super().prepare_global_plan(plans)

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Any:
        self.save.on_phase(Phase.PLANNED)
        try:
            written = super().write_data(plan, planner)
            with self._stream(self.save.temporary / state_name(self.save.rank), "wb") as file:
                file.write(self.save.train_state)
        except Exception as error:
            hidden = next((file.error for file in self._open if file.error is not None), None)
            if hidden is not None and hidden is not error:
                raise OSError(hidden.errno, hidden.strerror, str(self.save.root)) from error
            raise
        self.save.on_phase(Phase.WRITTEN)
        self._write_manifest()
        self.save.on_phase(Phase.MANIFEST)
        return written

    def _write_manifest(self) -> None:
        save = self.save
        manifest = RankManifest(save.save_id, save.step, save.rank, tuple(self._sums.values()))
        write_durably(save.temporary / manifest_name(save.rank), lambda file: file.write(manifest.to_bytes()))

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        super().finish(metadata, results)
        manifests = [sum_of_file(self.save.temporary / manifest_name(rank)) for rank in range(self.save.world)]
        index = sum_of_file(self.save.temporary / INDEX)
        self.save.on_phase(Phase.INDEX)
        flush_folder(self.save.temporary)
        folder = _rename(self.save)
        self.save.on_phase(Phase.RENAMED)
        complete = Complete(
            save_id=self.save.save_id,
            step=self.save.step,
            sequence=next_sequence(self.save.root),
            world_size=self.save.world,
            files=(index, *manifests),
            metrics=self.save.metrics,
            saved_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            torch=str(torch.__version__),
        )
        write_durably(folder / COMPLETE, lambda file: file.write(complete.to_bytes()))
        self.save.folder = folder
        self.save.on_phase(Phase.COMPLETE)

    @contextlib.contextmanager
    def _stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[SummingFile]:
        """In place of ``FileSystem.create_stream``."""
        assert mode == "wb", mode
        file = SummingFile(Path(path), self._note_first_bytes)
        self._open.append(file)
        try:
            yield file
        finally:
            file.close()
        self._sums[file.path.name] = file.sum()

    def _note_first_bytes(self) -> None:
        if not self._began:
            self._began = True
            self.save.on_phase(Phase.WRITING)


class CarefulSavePlanner(DefaultSavePlanner):
    """Of what all ranks have, the first one's is saved: buffers under DDP differ, and the first one's count."""

    def __init__(self) -> None:
        super().__init__(dedup_save_to_lowest_rank=True)

    def transform_object(self, write_item: WriteItem, object: Any) -> Any:
        if write_item.type == WriteItemType.BYTE_IO:
            return io.BytesIO(to_bytes(object, write_item.index.fqn))
        return super().transform_object(write_item, object)


def _bytes_of(item: WriteItem) -> int:
    if item.tensor_data is None:
        return 0
    numel = 1
    for size in item.tensor_data.chunk.sizes:
        numel *= size
    return numel * torch.empty((), dtype=item.tensor_data.properties.dtype).element_size()


def _rename(save: Save) -> Path:
    """To the first free name. A folder of that step without a marker is what a killed save left: out of the way."""
    for name in final_names(save.step):
        target = save.root / name
        if target.is_dir() and not (target / COMPLETE).exists():
            away = save.root / trash_name(name, save.save_id)
            os.rename(target, away)
            shutil.rmtree(away, ignore_errors=True)
        try:
            os.rename(save.temporary, target)
        except OSError:
            if not target.exists():
                raise
            continue
        flush_folder(save.root)
        return target
    raise FileExistsError(f"step {save.step} has been saved a thousand times in {save.root}")
