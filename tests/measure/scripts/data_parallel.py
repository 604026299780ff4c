"""nn.DataParallel around the model, as old scripts do."""

import torch
from common import make_dataset, make_model
from torch.utils.data import DataLoader

device = "cuda" if torch.cuda.is_available() else "cpu"
model = torch.nn.DataParallel(make_model().to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(50):
    for inputs, labels in DataLoader(make_dataset(), 64):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs.to(device)), labels.to(device)).backward()
        optimizer.step()
