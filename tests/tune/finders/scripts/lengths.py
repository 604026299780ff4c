"""Texts of different lengths, padded; a few are very long. A batch with more tokens than ``--most`` does not fit."""

import argparse

import torch
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("-b", type=int, default=4)
parser.add_argument("--most", type=int, default=4000)
args = parser.parse_args()


class Texts(Dataset):
    def __len__(self):
        return 20_000

    def __getitem__(self, index):
        return torch.ones(500 if index > 19_950 else 5 + index * index % 83)


def pad(texts):
    return torch.nn.utils.rnn.pad_sequence(texts, batch_first=True)


model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for texts in DataLoader(Texts(), args.b, collate_fn=pad):  # in order: the long ones come last
    if texts.numel() > args.most:
        raise torch.OutOfMemoryError(f"CUDA out of memory. {texts.numel()} tokens")
    optimizer.zero_grad()
    model(texts[..., None]).mean().backward()
    optimizer.step()
