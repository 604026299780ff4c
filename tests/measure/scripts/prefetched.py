"""A slow loader whose batches are fetched and copied ahead, as gpu_prefetch does it, on a CPU.

A side stream that is not there is stood in for by one that takes its time: what a GPU would wait for, this host does.
"""

import time

import torch
from common import make_model
from torch.utils.data import DataLoader, Dataset

from vivace.practices import gpu_prefetch

LOAD_S, COPY_S = 0.030, 0.010


class Slow(Dataset):
    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        time.sleep(LOAD_S / 8)
        return torch.full((8,), float(index % 5)), index % 4


class Side:
    def send(self, tensor: torch.Tensor) -> tuple[torch.Tensor, float]:
        return tensor.clone(), 0.0

    def hand_over(self, _copy: torch.Tensor, _whole: float) -> None:
        time.sleep(COPY_S)


if __name__ == "__main__":
    gpu_prefetch._check_gpu = lambda: None
    prefetch = gpu_prefetch.GpuPrefetch()
    prefetch.side = Side()
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(Slow(), batch_size=8, num_workers=1)
    for inputs, labels in prefetch.iterator(loader, iter(loader)):
        arrived = prefetch.arrived(inputs)
        loss = torch.nn.functional.cross_entropy(model(inputs if arrived is None else arrived), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
