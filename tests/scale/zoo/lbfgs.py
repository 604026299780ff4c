"""L-BFGS with a line search on the whole data set, then Adafactor, then an optimizer of the script's own."""

import torch
import torch.nn as nn

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
x = torch.linspace(-2, 2, 31)[:, None]
y = torch.sin(2 * x) + 0.05 * torch.randn(31, 1)
model = nn.Sequential(nn.Linear(1, 12), nn.Tanh(), nn.Linear(12, 1))
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=6, line_search_fn="strong_wolfe")


def closure():
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    return loss


for step in range(4):
    print("step", step, optimizer.step(closure).item())


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.99)):
        super().__init__(params, {"lr": lr, "betas": betas})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["exp_avg"] = torch.zeros_like(p)
                average, (first, second) = state["exp_avg"], group["betas"]
                p.add_(torch.sign(average * first + p.grad * (1 - first)), alpha=-group["lr"])
                average.mul_(second).add_(p.grad, alpha=1 - second)


for kind in (torch.optim.Adafactor, Lion):
    optimizer = kind(model.parameters(), lr=1e-3)
    for step in range(3):
        print(kind.__name__, closure().item())
        optimizer.step()
state = optimizer.state_dict()["state"]
print("state", sorted(state), sum(value["exp_avg"].sum().item() for value in state.values()))
