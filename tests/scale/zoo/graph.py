"""A graph network on one graph: nodes are not samples, messages cross the rows; masked training nodes."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
nodes, edges = torch.randn(20, 6), torch.randint(0, 20, (2, 60))
labels, known = torch.randint(0, 3, (20,)), torch.rand(20) < 0.6


class Layer(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.own, self.other = nn.Linear(inside, outside), nn.Linear(inside, outside, bias=False)

    def forward(self, x, edges):
        sent = torch.zeros_like(x).index_add(0, edges[1], x[edges[0]])
        count = torch.bincount(edges[1], minlength=len(x)).clamp(min=1)
        return self.own(x) + self.other(sent / count[:, None])


class Graph(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Layer(6, 12), Layer(12, 3)])

    def forward(self, x, edges):
        x = F.dropout(F.relu(self.layers[0](x, edges)), 0.3, self.training)
        return self.layers[1](x, edges)


model = Graph()
optimizer = torch.optim.Adam(model.parameters(), 0.02, weight_decay=5e-4)
for epoch in range(6):
    model.train()
    out = model(nodes, edges)
    loss = F.nll_loss(F.log_softmax(out, 1)[known], labels[known])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    model.eval()
    with torch.no_grad():
        right = (model(nodes, edges).argmax(1) == labels)[~known].double().mean()
    print("epoch", epoch, loss.item(), right.item())
