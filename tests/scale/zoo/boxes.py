"""Detection: images with lists of boxes in dicts, losses in a dict from the model in training, boxes in evaluation."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)


class Boxes(Dataset):
    def __init__(self):
        self.images = torch.randn(14, 3, 8, 8)
        self.targets = [
            {"boxes": torch.rand(1 + i % 3, 4), "labels": torch.randint(0, 3, (1 + i % 3,))} for i in range(14)
        ]

    def __len__(self):
        return 14

    def __getitem__(self, index):
        return self.images[index], self.targets[index]


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(72, 16), nn.ReLU())
        self.box, self.kind = nn.Linear(16, 4), nn.Linear(16, 3)

    def forward(self, images, targets=None):
        x = self.body(torch.stack(list(images)))
        box, kind = self.box(x), self.kind(x)
        if targets is None:
            return [{"box": b, "label": k.argmax()} for b, k in zip(box, kind)]
        first = torch.stack([target["boxes"].mean(0) for target in targets])
        labels = torch.stack([target["labels"][0] for target in targets])
        return {"box": F.smooth_l1_loss(box, first), "kind": F.cross_entropy(kind, labels)}


model = Detector()
optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
for images, targets in DataLoader(Boxes(), 4, shuffle=True, collate_fn=lambda batch: tuple(zip(*batch))):
    losses = model(images, targets)
    loss = sum(losses.values())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("losses", *[value.item() for value in losses.values()])
model.eval()
with torch.no_grad():
    found = model(Boxes().images[:5])
print("found", *[each["box"].sum().item() for each in found], *[each["label"].item() for each in found])
