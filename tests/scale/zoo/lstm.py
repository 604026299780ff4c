"""An LSTM with the sequence first, hidden states carried from batch to batch, parameters updated by hand."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
text = torch.randint(0, 20, (400,)).view(10, 40).t().contiguous()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.rnn, self.out = nn.Embedding(20, 12), nn.LSTM(12, 16, 2), nn.Linear(16, 20)

    def forward(self, tokens, hidden):
        output, hidden = self.rnn(self.embed(tokens), hidden)
        return F.log_softmax(self.out(output).view(-1, 20), dim=1), hidden


model = Model()
hidden = (torch.zeros(2, 10, 16), torch.zeros(2, 10, 16))
for start in range(0, 35, 5):
    tokens, targets = text[start : start + 5], text[start + 1 : start + 6].reshape(-1)
    hidden = tuple(state.detach() for state in hidden)
    model.zero_grad()
    output, hidden = model(tokens, hidden)
    loss = F.nll_loss(output, targets)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.25)
    for p in model.parameters():
        p.data.add_(p.grad, alpha=-1.0)
    print("loss", loss.item())
