"""A GradScaler, a dictionary as batch, early stopping, a metrics file that is written and read back."""

import json
import os

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)


class Rows(Dataset):
    def __init__(self):
        self.x, self.y = torch.randn(60, 5), torch.randint(0, 2, (60,)).double()

    def __len__(self):
        return 60

    def __getitem__(self, index):
        return {"x": self.x[index], "y": self.y[index]}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(5, 10), nn.ReLU(), nn.Linear(10, 1))
        self.loss = nn.BCEWithLogitsLoss()

    def forward(self, x, y):
        score = self.net(x).squeeze(1)
        return {"loss": self.loss(score, y), "score": score, "right": ((score > 0) == (y > 0)).sum()}


model = Model()
optimizer = torch.optim.Adam(model.parameters(), 1e-2)
scaler = torch.amp.GradScaler("cpu")
seen, patience = [], 0
for epoch in range(4):
    for batch in DataLoader(Rows(), 16, num_workers=2):
        out = model(**batch)
        optimizer.zero_grad()
        scaler.scale(out["loss"]).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
        print("loss", out["loss"].item(), out["right"].item())
    seen.append(out["loss"].item())
    with open("metrics.json", "w") as file:
        json.dump(seen, file)
    if len(json.load(open("metrics.json"))) > 2 and os.path.exists("metrics.json"):
        print("stopped", epoch)
        break
