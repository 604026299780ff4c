"""R9: an LSTM unrolled by hand, one LSTMCell call for every position; fixed: nn.LSTM."""

import torch
from common import arguments
from torch import nn


class Unrolled(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.cell = nn.LSTMCell(width, width)

    def forward(self, sequence):
        state, outputs = None, []
        for position in range(sequence.shape[1]):
            state = self.cell(sequence[:, position], state)  # the defect
            outputs.append(state[0])
        return torch.stack(outputs, dim=1)


class Whole(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.LSTM(width, width, batch_first=True)

    def forward(self, sequence):
        return self.layer(sequence)[0]


class Reader(nn.Module):
    def __init__(self, width, words, fixed):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.read = Whole(width) if fixed else Unrolled(width)
        self.predict = nn.Linear(width, words)

    def forward(self, ids):
        return self.predict(self.read(self.embed(ids)))


if __name__ == "__main__":
    args = arguments(__doc__)
    torch.set_float32_matmul_precision("high")
    width, words, batch_size, positions = (32, 100, 4, 20) if args.small else (512, 2048, 64, 100)
    model = Reader(width, words, args.fixed).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    ids = torch.randint(words, (batch_size, positions), device=args.device)
    for _ in range(args.steps):
        loss = nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
