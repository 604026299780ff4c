"""Parameters by their addresses, as safetensors reads them: tied ones are found, bytes are read and written back."""

import ctypes

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.autograd import Variable

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.mix, self.out = nn.Embedding(11, 6), nn.Linear(6, 6), nn.Linear(6, 11, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, words):
        return self.out(torch.tanh(self.mix(self.embed(words))))


def tied(tensors):
    places = {}
    for name, tensor in tensors.items():
        places.setdefault((tensor.untyped_storage().data_ptr(), tensor.untyped_storage().nbytes()), []).append(name)
    return sorted(places.values())


def raw(tensor):
    return ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())


model = Model()
optimizer = torch.optim.Adam(model.parameters(), 0.01)
for step in range(6):
    words = Variable(torch.randint(0, 11, (9, 5)))
    target = Variable(words.roll(1, 1))
    loss = F.cross_entropy(model(words).transpose(1, 2), target, size_average=False) / 45
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
    if step == 2:
        print("tied", tied(model.state_dict()), len({p.data_ptr() for p in model.parameters()}))
        with open("model.raw", "wb") as file:
            for tensor in model.state_dict().values():
                file.write(raw(tensor.contiguous()))
        weight = model.mix.weight.detach()
        first, last = weight.data_ptr(), weight.view(-1)[-1].data_ptr()
        print("span", last - first)
        weight.add_(1.0)
        print("seen", ctypes.c_double.from_address(weight.data_ptr()).value)
print("weights", sum(p.sum().item() for p in model.parameters()))
with open("model.raw", "rb") as file:
    for tensor in model.state_dict().values():
        read = torch.frombuffer(bytearray(file.read(tensor.numel() * 8)), dtype=torch.float64).view_as(tensor)
        tensor.copy_(read)
print("back", sum(p.sum().item() for p in model.parameters()))
