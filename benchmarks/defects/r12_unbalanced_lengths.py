"""R12: ranks get batches of very different lengths and wait for each other; fixed: batches of about the same length.

torchrun --nproc-per-node 2 benchmarks/defects/r12_unbalanced_lengths.py --device cpu
"""

import random

import torch
from common import arguments
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, DistributedSampler

PADDING = 0


class Reader(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.embed = nn.Embedding(1000, width, padding_idx=PADDING)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
        self.encode = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.classify = nn.Linear(width, 10)

    def forward(self, ids):
        return self.classify(self.encode(self.embed(ids)).mean(dim=1))


def padded(samples):
    ids, labels = zip(*samples, strict=True)
    return nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=PADDING), torch.tensor(labels)


if __name__ == "__main__":
    args = arguments(__doc__)
    torch.distributed.init_process_group("gloo")
    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    width, batch_size = (32, 4) if args.small else (256, 8)
    draw = random.Random(0)
    lengths = [int(8 * 32 ** draw.random()) for _ in range(batch_size * world * 200)]  # 8 to 256, mostly short
    if args.fixed:  # sorted, cut into global batches, and these shuffled: samples that ranks compute together are alike
        lengths = sorted(lengths)
        together = [lengths[i : i + batch_size * world] for i in range(0, len(lengths), batch_size * world)]
        draw.shuffle(together)
        lengths = [n for batch in together for n in batch]
    texts = [(torch.randint(1, 1000, (n,)), n % 10) for n in lengths]
    sampler = DistributedSampler(texts, shuffle=not args.fixed)
    loader = DataLoader(texts, batch_size, sampler=sampler, collate_fn=padded)  # the defect
    model = nn.parallel.DistributedDataParallel(Reader(width))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    step = 0
    while step < args.steps:
        for ids, labels in loader:
            loss = F.cross_entropy(model(ids), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step >= args.steps:
                break
