"""Stacked GRU with dropout between the layers, batch first, sequences of another length in each batch."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(15, 8)
        self.rnn = nn.GRU(8, 12, 3, dropout=0.3, batch_first=True, bidirectional=True)
        self.out = nn.Linear(24, 4)

    def forward(self, tokens):
        return self.out(self.rnn(self.embed(tokens))[0]).reshape(-1, 4)


model = Tagger()
optimizer = torch.optim.Adagrad(model.parameters(), 0.05)
for step in range(8):
    tokens = torch.randint(0, 15, (7, 5 + step % 3))
    loss = F.cross_entropy(model(tokens), (tokens % 4).reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item(), model.training)
