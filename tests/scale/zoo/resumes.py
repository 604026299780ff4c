"""Early stopping with the best model kept on disk; then all objects are made anew and the training goes on from it."""

import copy
import os

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset, random_split

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
data = TensorDataset(torch.randn(60, 5), torch.randint(0, 3, (60,)))
train, valid = random_split(data, [42, 18], generator=torch.Generator().manual_seed(1))


class EarlyStopping:
    def __init__(self, patience):
        self.patience, self.best, self.bad, self.weights = patience, float("inf"), 0, None

    def stop(self, loss, model):
        if loss < self.best - 1e-4:
            self.best, self.bad, self.weights = loss, 0, copy.deepcopy(model.state_dict())
        else:
            self.bad += 1
        return self.bad > self.patience


def build():
    model = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3))
    optimizer = torch.optim.NAdam(model.parameters(), 0.02)
    return model, optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 12)


def run(first, epochs):
    model, optimizer, schedule = build()
    stopping = EarlyStopping(1)
    if os.path.exists("last.pt"):
        saved = torch.load("last.pt", weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        schedule.load_state_dict(saved["schedule"])
        torch.set_rng_state(saved["chance"])
        print("resumed at", saved["epoch"])
    for epoch in range(first, first + epochs):
        model.train()
        for x, y in DataLoader(train, 8, shuffle=True):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        schedule.step()
        model.eval()
        with torch.no_grad():
            loss = sum(F.cross_entropy(model(x), y, reduction="sum").item() for x, y in DataLoader(valid, 7)) / 18
        print("epoch", epoch, loss, schedule.get_last_lr()[0])
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "schedule": schedule.state_dict()}
        torch.save({**state, "epoch": epoch + 1, "chance": torch.get_rng_state()}, "last.tmp")
        os.replace("last.tmp", "last.pt")
        if stopping.stop(loss, model):
            print("stopped")
            break
    model.load_state_dict(stopping.weights)
    print("best", stopping.best, sum(p.sum().item() for p in model.parameters()))


run(0, 3)
run(3, 3)
