"""A CNN with batch norm, dropout, clipping, a schedule, validation, best-model save and resume. Last batch smaller."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
images, labels = torch.randn(103, 3, 12, 12), torch.randint(0, 5, (103,))
data = TensorDataset(images, labels)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 16, 3, 2), nn.BatchNorm2d(16)
        )
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        return self.head(F.dropout(F.relu(self.body(x)).mean((2, 3)), 0.3, self.training))


model = Net()
optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.7)
best = float("inf")
for epoch in range(2):
    model.train()
    for x, y in DataLoader(data, 20, shuffle=True):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        print("loss", loss.item(), "norm", float(norm))
    schedule.step()
    model.eval()
    with torch.no_grad():
        scores = [
            (F.cross_entropy(model(x), y, reduction="sum").item(), (model(x).argmax(1) == y).sum().item())
            for x, y in DataLoader(data, 33)
        ]
    total = sum(score[0] for score in scores) / len(data)
    print("validation", total, sum(score[1] for score in scores))
    if total < best:
        best = total
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "best.pt")
saved = torch.load("best.pt")
model.load_state_dict(saved["model"])
optimizer.load_state_dict(saved["optimizer"])
print("weights", sum(p.sum().item() for p in model.parameters()))
