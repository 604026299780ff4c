"""A tagger of sequences of different lengths: sorted and padded by a collate function, packed, padding ignored."""

import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader

torch.set_default_dtype(torch.float64)
random.seed(0)
torch.manual_seed(0)
data = [(torch.randint(1, 20, (n,)), torch.randint(0, 4, (n,))) for n in random.choices(range(2, 9), k=26)]


def collate(samples):
    samples = sorted(samples, key=lambda sample: len(sample[0]), reverse=True)
    words, tags = zip(*samples)
    lengths = torch.tensor([len(each) for each in words])
    return pad_sequence(words, batch_first=True), pad_sequence(tags, batch_first=True, padding_value=-100), lengths


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 8, padding_idx=0)
        self.lstm = nn.LSTM(8, 10, batch_first=True, bidirectional=True)
        self.out = nn.Linear(20, 4)

    def forward(self, words, lengths):
        packed = pack_padded_sequence(self.embed(words), lengths, batch_first=True)
        states, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        return self.out(states)


model = Tagger()
optimizer = torch.optim.Adam(model.parameters(), 0.01)
for epoch in range(3):
    right = total = 0
    for words, tags, lengths in DataLoader(data, 7, shuffle=True, collate_fn=collate):
        scores = model(words, lengths)
        loss = F.cross_entropy(scores.transpose(1, 2), tags, ignore_index=-100)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        known = tags != -100
        right += (scores.argmax(-1)[known] == tags[known]).sum().item()
        total += known.sum().item()
        print("loss", loss.item())
    print("accuracy", right, total)
