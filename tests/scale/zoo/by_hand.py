"""No module and no optimizer: two matrices, updated by hand."""

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
data = TensorDataset(torch.randn(45, 6), torch.randint(0, 4, (45,)))
first, second = torch.randn(6, 16, requires_grad=True), torch.randn(16, 4, requires_grad=True)
for epoch in range(3):
    for x, y in DataLoader(data, batch_size=10, shuffle=True):
        loss = F.cross_entropy(torch.relu(x @ first) @ second, y)
        loss.backward()
        with torch.no_grad():
            for weight in (first, second):
                weight -= 0.1 * weight.grad
                weight.grad = None
        print("loss", loss.item())
