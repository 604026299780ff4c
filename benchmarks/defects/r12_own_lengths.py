"""R12, R10: every batch is padded to its own length while cuDNN's autotuner is on; fixed: to a rounded length.

Shapes are new at almost every step: algorithms are measured again, and memory is asked for anew.
"""

import random

import torch
from common import arguments
from torch import nn
from torch.utils.data import DataLoader, Dataset

BANDS, MULTIPLE = 80, 128
LAYERS = 3  # with six, the autotuner took about a second per step on an H200, and check did not end within a minute


class Recordings(Dataset):
    """Spectrograms of 3 to 12 seconds, cut from one long one."""

    def __init__(self, longest):
        draw = random.Random(0)
        self.lengths = [draw.randint(longest // 4, longest) for _ in range(20_000)]
        self.sound = torch.randn(longest, BANDS)

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, index):
        return self.sound[: self.lengths[index]]


def padded(samples):
    longest = max(len(sample) for sample in samples)
    if args.fixed:
        longest = -(-longest // MULTIPLE) * MULTIPLE
    batch = torch.zeros(len(samples), 1, longest, BANDS)
    for row, sample in zip(batch, samples, strict=True):
        row[0, : len(sample)] = sample
    return batch


class Listener(nn.Module):
    def __init__(self, width):
        super().__init__()
        layers = []
        for number in range(LAYERS):
            stride = 2 if number in (0, 2) else 1
            convolution = nn.Conv2d(width if number else 1, width, 3, stride, padding=1, bias=False)
            layers += [convolution, nn.BatchNorm2d(width), nn.ReLU()]
        self.features = nn.Sequential(*layers)
        self.letters = nn.Linear(width * BANDS // 4, 40)

    def forward(self, batch):
        return self.letters(self.features(batch).transpose(1, 2).flatten(2))


if __name__ == "__main__":
    args = arguments(__doc__)
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    width, batch_size, longest = (4, 4, 200) if args.small else (32, 4, 1200)
    model = Listener(width).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    recordings, pinned = Recordings(longest), args.device == "cuda"
    loader = DataLoader(  # the defect
        recordings, batch_size, shuffle=True, collate_fn=padded, num_workers=2, pin_memory=pinned,
        persistent_workers=True,
    )  # fmt: skip
    step = 0
    while step < args.steps:
        for batch in loader:
            batch = batch.to(args.device, non_blocking=True)
            with torch.autocast(args.device, torch.bfloat16):
                output = model(batch)
            loss = output.float().square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step >= args.steps:
                break
