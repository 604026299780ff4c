"""An encoder and a decoder with attention, teacher forcing at random, the decoder called word by word."""

import random

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
random.seed(0)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.gru = nn.Embedding(12, 8), nn.GRU(8, 10, batch_first=True)

    def forward(self, words):
        return self.gru(self.embed(words))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.cell, self.out = nn.Embedding(12, 8), nn.GRUCell(18, 10), nn.Linear(10, 12)

    def forward(self, word, hidden, memory):
        weights = torch.bmm(memory, hidden.unsqueeze(2)).softmax(1)
        context = (weights * memory).sum(1)
        hidden = self.cell(torch.cat([self.embed(word), context], 1), hidden)
        return self.out(hidden), hidden


encoder, decoder = Encoder(), Decoder()
optimizers = [torch.optim.Adam(each.parameters(), 0.01) for each in (encoder, decoder)]
for step in range(5):
    source = torch.randint(1, 12, (6, 5))
    target = source.flip(1)
    memory, hidden = encoder(source)
    hidden, word, loss = hidden[0], torch.zeros(6, dtype=torch.long), 0
    for place in range(5):
        scores, hidden = decoder(word, hidden, memory)
        loss = loss + F.cross_entropy(scores, target[:, place])
        word = target[:, place] if random.random() < 0.5 else scores.argmax(1).detach()
    for optimizer in optimizers:
        optimizer.zero_grad()
    loss.backward()
    for optimizer in optimizers:
        optimizer.step()
    print("loss", loss.item() / 5)
