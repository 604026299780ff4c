"""How the ranks talk: a process group of vivace's own. ``torch.distributed`` stays as the script would find it alone.

Every rank calls the same functions in the same order. A rank that is gone makes the others fail after ``TIMEOUT_S``;
the launcher ends them before, and names one that hangs (``progress``).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from vivace.scale.place import ScalePlace
from vivace.scale.progress import Progress
from vivace.scale.shares import Shares

__all__ = ["Group"]

TIMEOUT_S = 1800.0  # one rank may compile or write a checkpoint while the others wait


class Group:
    def __init__(self, place: ScalePlace) -> None:
        self.rank, self.world = place.rank, place.world
        self.bytes_sent = 0  # by this rank's own tensors; what a collective makes of them is torch's
        how, _, where = place.meet.partition(":")
        self.progress = Progress(Path(where) if how == "file" else None, place.rank)
        self._store = _store(place)
        self._timeout = timedelta(seconds=TIMEOUT_S)
        self._gloo: Any = dist.ProcessGroupGloo(
            dist.PrefixStore("vivace/cpu", self._store), self.rank, self.world, self._timeout
        )
        self.average_too: Callable[[torch.Tensor], None] = lambda leaf: None
        """Told each tensor that needs its gradient averaged like a parameter's."""
        self._own_gpu = place.own_gpu and dist.is_nccl_available()
        self._nccl: Any = None
        self._beside: dict[str, Any] = {}

    def _of(self, tensor: torch.Tensor) -> Any:
        if tensor.device.type != "cuda" or not self._own_gpu:
            return self._gloo
        if self._nccl is None:
            store = dist.PrefixStore("vivace/cuda", self._store)
            make: Any = dist.ProcessGroupNCCL
            self._nccl = make(store, self.rank, self.world, self._timeout)
        return self._nccl

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        """The sum over ranks, in place."""
        self.bytes_sent += tensor.numel() * tensor.element_size()
        with self.progress:
            self._of(tensor).allreduce([tensor]).wait()
        return tensor

    def start_sum(self, tensor: torch.Tensor) -> Any:
        """Begin to add it up over ranks, in place; what is returned is waited for. Ranks begin such sums in the same
        order, but at any moment between their other exchanges."""
        self.bytes_sent += tensor.numel() * tensor.element_size()
        kind = "cuda" if tensor.device.type == "cuda" and self._own_gpu else "cpu"
        if kind not in self._beside:
            make: Any = dist.ProcessGroupNCCL if kind == "cuda" else dist.ProcessGroupGloo
            store = dist.PrefixStore(f"vivace/beside/{kind}", self._store)
            self._beside[kind] = make(store, self.rank, self.world, self._timeout)
        return self._beside[kind].allreduce([tensor])

    def largest(self, tensor: torch.Tensor) -> torch.Tensor:
        """The largest over ranks, element by element, in place."""
        options = dist.AllreduceOptions()
        options.reduceOp = dist.ReduceOp.MAX  # type: ignore[assignment]
        with self.progress:
            self._of(tensor).allreduce([tensor], options).wait()
        return tensor

    def all_agree(self, yes: bool) -> bool:
        """Whether every rank says yes."""
        return not bool(self.largest(torch.tensor([not yes], dtype=torch.uint8)).item())

    def all_say_the_same(self, text: str) -> bool:
        mine = torch.tensor([zlib.crc32(text.encode())], dtype=torch.int64)
        largest, smallest = self.largest(torch.cat([mine, -mine])).tolist()
        return bool(largest == -smallest)

    def from_first(self, tensors: Sequence[torch.Tensor]) -> None:
        """Give every rank the values of rank 0, in place."""
        for tensor in tensors:
            whole = tensor.contiguous()
            with self.progress:
                self._of(whole).broadcast([whole]).wait()
            if whole is not tensor:
                tensor.copy_(whole)

    def from_rank(self, rank: int, tensor: torch.Tensor) -> torch.Tensor:
        """The values of that rank, in place; ``tensor`` is contiguous."""
        options = dist.BroadcastOptions()
        options.rootRank = rank
        self.bytes_sent += tensor.numel() * tensor.element_size() if rank == self.rank else 0
        with self.progress:
            self._of(tensor).broadcast([tensor], options).wait()
        return tensor

    def text_from_rank(self, rank: int, text: str) -> str:
        """What that rank says; the others' words do not count."""
        data = text.encode()
        size = int(self.from_rank(rank, torch.tensor([len(data)])).item())
        own = torch.frombuffer(bytearray(data), dtype=torch.uint8) if rank == self.rank and size else None
        told = self.from_rank(rank, torch.empty(size, dtype=torch.uint8) if own is None else own) if size else None
        return "" if told is None else bytes(told.tolist()).decode()

    def gather(self, part: torch.Tensor, shares: Shares, dim: int) -> torch.Tensor:
        """The parts of all ranks, one after the other along ``dim``."""
        rows = part.movedim(dim, 0).contiguous()
        kind = rows.dtype
        rows = rows.view(torch.uint8) if kind is torch.bool else rows
        padded = rows
        if rows.size(0) < shares.most:  # a collective wants equal sizes
            padded = rows.new_zeros((shares.most, *rows.shape[1:]))
            padded[: rows.size(0)] = rows
        self.bytes_sent += padded.numel() * padded.element_size()
        parts = [torch.empty_like(padded) for _ in range(self.world)]
        with self.progress:
            self._of(padded).allgather([parts], [padded]).wait()
        whole = torch.cat([each[:size] for each, size in zip(parts, shares.sizes)])
        return (whole.view(torch.bool) if kind is torch.bool else whole).movedim(0, dim).contiguous()

    def wait_for_all(self) -> None:
        with self.progress:
            self._gloo.barrier().wait()

    def beside(self, name: str) -> Any:
        """A gloo group of the same ranks for questions whose answers are read later, among other exchanges."""
        store = dist.PrefixStore(f"vivace/{name}", self._store)
        return dist.ProcessGroupGloo(store, self.rank, self.world, self._timeout)


def _store(place: ScalePlace) -> Any:
    how, _, where = place.meet.partition(":")
    if how == "file":
        return dist.FileStore(_next_store(Path(where), place.rank), place.world)
    host, _, port = where.rpartition(":")
    return dist.TCPStore(host, int(port), place.world, place.rank == 0, timedelta(seconds=300))


def _next_store(folder: Path, rank: int) -> str:
    """A command may start several Pythons, one after the other: the n-th one of each rank meet."""
    number = 0
    while True:
        try:
            (folder / f"{number}-{rank}").touch(exist_ok=False)
        except FileExistsError:
            number += 1
        else:
            return str(folder / f"store-{number}")
