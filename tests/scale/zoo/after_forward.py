"""What scripts do to a model after its first forward: edits of weights, copies, averages, other optimizers."""

import copy
import io

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear, self.norm = nn.Linear(width, width), nn.LayerNorm(width)
        self.scale = nn.Parameter(torch.tensor(0.5))

    def forward(self, x):
        return x + self.scale * torch.tanh(self.linear(self.norm(x)))


class Net(nn.Module):
    def __init__(self, width=7):
        super().__init__()
        self.embed = nn.Embedding(11, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(3))
        self.head = nn.Linear(width, 11, bias=False)
        self.head.weight = self.embed.weight

    def encode(self, words):
        return self.blocks[0](self.embed(words))

    def forward(self, words):
        x = self.encode(words)
        for block in self.blocks[1:]:
            x = block(x)
        return self.head(x)


model = Net()
parameters = list(model.parameters())  # made before the first forward, used after it
optimizer = torch.optim.AdamW(model.parameters(), 0.01)
words = torch.randint(0, 11, (6, 5))


def step(text, penalty=lambda: 0.0):
    target = torch.randint(0, 11, (6, 5))
    loss = F.cross_entropy(model(words).flatten(0, 1), target.flatten()) + penalty()
    optimizer.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(parameters, 0.7)
    optimizer.step()
    print(text, loss.item(), f"{norm:.12f}")


step("first")
print(model, type(model).__name__, sum(p.numel() for p in model.parameters()))
step("penalty", lambda: 1e-3 * sum(p.pow(2).sum() for p in model.parameters()))

best, weights, alias = copy.deepcopy(model), copy.deepcopy(model.state_dict()), model.state_dict()
step("copied")
print("copies", best(words).sum().item(), *[sum(v.sum().item() for v in state.values()) for state in (weights, alias)])
model.load_state_dict(weights)
print("loaded", model(words).sum().item())
file = io.BytesIO()
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
file.seek(0)
saved = torch.load(file)
print({name: (type(value).__name__, tuple(value.shape)) for name, value in saved["model"].items()})
file = io.BytesIO()
torch.save(model, file)
file.seek(0)
safe = [Net, Block, nn.Embedding, nn.ModuleList, nn.Linear, nn.LayerNorm, set]
with torch.serialization.safe_globals(safe):
    print("whole model", torch.load(file)(words).sum().item())
step("on")
model.load_state_dict(saved["model"])
optimizer.load_state_dict(saved["optimizer"])
step("back")

with torch.no_grad():
    for p in model.parameters():
        p.mul_(0.999)
    model.embed.weight[3].zero_()
    model.embed.weight.data[4] = 1.0
    model.blocks[0].linear.weight.data.view(-1)[:5].fill_(0.25)
    model.blocks[1].linear.weight.normal_(0, 0.1)
    nn.init.xavier_uniform_(model.blocks[2].linear.weight)
print("edited", model(words).sum().item(), f"{model.embed.weight.norm():.10f}")
print(model.blocks[0].linear.bias, model.embed.weight[0])

optimizer.zero_grad()
model.encode(words).pow(2).mean().backward()  # around the model's own forward
print("encoded", [None if p.grad is None else p.grad.sum().item() for p in parameters])
optimizer.step()

for p in model.blocks[0].parameters():
    p.requires_grad_(False)
step("frozen")
print([p.grad is None for p in parameters].count(True))
model.requires_grad_(True)
step("thawed")

averages = {name: p.detach().clone() for name, p in model.named_parameters()}
for _ in range(2):
    step("averaged")
    for name, p in model.named_parameters():
        averages[name].mul_(0.9).add_(p.data, alpha=0.1)
kept = {name: p.data.clone() for name, p in model.named_parameters()}
for name, p in model.named_parameters():
    p.data = averages[name]
print("with averages", model(words).sum().item())
for name, p in model.named_parameters():
    p.data.copy_(kept[name])
averaged = torch.optim.swa_utils.AveragedModel(model)
step("swa")
averaged.update_parameters(model)
print("average", averaged(words).sum().item())

vector = nn.utils.parameters_to_vector(model.parameters())
nn.utils.vector_to_parameters(vector * 0.9, model.parameters())
optimizer = torch.optim.SGD(
    [{"params": model.embed.parameters()}, {"params": model.blocks.parameters(), "lr": 0.1}], 0.01
)
step("sgd")
for p in model.parameters():
    p.grad = torch.ones_like(p) * 0.1
optimizer.step()
optimizer = torch.optim.Adafactor(model.parameters())
step("adafactor")
print("end", [p.sum().item() for p in model.parameters()], model.embed.weight is model.head.weight)
