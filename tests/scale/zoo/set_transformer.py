"""Sets of points: attention with a learned seed that pools each set, key padding masks, mean absolute error."""

import torch
import torch.nn as nn

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)


class SetTransformer(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.into = nn.Linear(2, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 3, 24, dropout=0.1, batch_first=True, norm_first=True) for _ in range(2)
        )
        self.seed = nn.Parameter(torch.randn(1, 1, width))
        self.pool = nn.MultiheadAttention(width, 3, batch_first=True)
        self.out = nn.Linear(width, 1)

    def forward(self, points, padding):
        x = self.into(points)
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=padding)
        pooled, _ = self.pool(self.seed.expand(len(points), -1, -1), x, x, key_padding_mask=padding, need_weights=False)
        return self.out(pooled).squeeze(-1).squeeze(-1)


model = SetTransformer()
optimizer = torch.optim.AdamW(model.parameters(), 2e-3)
for step in range(8):
    points = torch.randn(7, 5, 2)
    sizes = torch.randint(2, 6, (7,))
    padding = torch.arange(5)[None] >= sizes[:, None]
    target = points.masked_fill(padding[..., None], -9.0).amax((1, 2))
    loss = (model(points, padding) - target).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("step", step, "loss", loss.item())
