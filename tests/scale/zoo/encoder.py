"""nn.TransformerEncoder with the sequence first, dropout everywhere, a mask kept as an attribute."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
text = torch.randint(0, 20, (9, 60))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.mask = None
        self.embed, self.out = nn.Embedding(20, 16), nn.Linear(16, 20)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, 0.2), 2, enable_nested_tensor=False)

    def forward(self, tokens):
        if self.mask is None or self.mask.size(0) != len(tokens):
            self.mask = nn.Transformer.generate_square_subsequent_mask(len(tokens)).to(torch.float64)
        return F.log_softmax(self.out(self.encoder(self.embed(tokens), mask=self.mask)), dim=-1)


model = Model()
optimizer = torch.optim.NAdam(model.parameters(), 1e-3)
for step in range(8):
    columns = torch.randperm(60)[:14]
    tokens = text[:, columns]
    loss = F.nll_loss(model(tokens[:-1]).view(-1, 20), tokens[1:].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
