"""Optimizers of a script's own that look at a parameter, or at all of them, as a whole."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)


class Lamb(torch.optim.Optimizer):
    """Gradients are clipped by their norm over all parameters; each parameter has a trust ratio."""

    def __init__(self, params, lr=1e-2):
        super().__init__(params, {"lr": lr, "weight_decay": 0.01})

    @torch.no_grad()
    def step(self, closure=None):
        total = torch.zeros(1)
        for group in self.param_groups:
            for p in group["params"]:
                total.add_(p.grad.pow(2).sum())
        clip = torch.clamp(total.sqrt(), min=0.05)
        for group in self.param_groups:
            group["step"] = group.get("step", 0) + 1
            for p in group["params"]:
                grad, state = p.grad / clip, self.state[p]
                if not state:
                    state["m"], state["v"] = torch.zeros_like(p), torch.zeros_like(p)
                state["m"].mul_(0.9).add_(grad, alpha=0.1)
                state["v"].mul_(0.99).addcmul_(grad, grad, value=0.01)
                update = (state["m"] / (1 - 0.9 ** group["step"])) / (state["v"].sqrt() + 1e-6)
                update.add_(p, alpha=group["weight_decay"])
                ratio = p.norm() / update.norm()
                p.add_(update, alpha=-group["lr"] * (ratio.item() if ratio > 0 else 1.0))


class Lars(torch.optim.SGD):
    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.ndim > 1:
                    p.grad.mul_(0.02 * torch.norm(p) / (torch.norm(p.grad) + 1e-9))
        return super().step(closure)


class Shampoo(torch.optim.Optimizer):
    def __init__(self, params, lr=0.05):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                grad = p.grad
                for dim, size in enumerate(p.size()):
                    key = f"precond_{dim}"
                    if key not in self.state[p]:
                        self.state[p][key] = 1e-3 * torch.eye(size)
                    grad = grad.transpose(0, dim).contiguous()
                    shape = grad.size()
                    grad = grad.view(size, -1)
                    self.state[p][key].add_(grad @ grad.t())
                    values, vectors = torch.linalg.eigh(self.state[p][key])
                    grad = (vectors @ torch.diag(values.clamp_min(1e-9) ** (-0.5 / p.dim())) @ vectors.t() @ grad).view(
                        shape
                    )
                    grad = grad.transpose(0, dim)
                p.add_(grad, alpha=-group["lr"])


class Langevin(torch.optim.Optimizer):
    """Noise of its own for each parameter; the step size follows a sum over all of them."""

    def __init__(self, params, lr=1e-2):
        super().__init__(params, {"lr": lr})
        self.distance = 1e-3

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        params = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        self.distance += 1e-3 * sum(torch.dot(p.grad.flatten(), p.flatten()).item() for p in params)
        for index, p in enumerate(params):
            p.sub_((p.grad + 0.01 * torch.randn_like(p)) * (abs(self.distance) + 0.01 / (1 + index)))
        return loss


class Lookahead:
    def __init__(self, base, every=2):
        self.base, self.every, self.count = base, every, 0
        self.slow = [[p.clone().detach() for p in group["params"]] for group in base.param_groups]

    def step(self):
        self.base.step()
        self.count += 1
        if self.count % self.every == 0:
            for group, slow in zip(self.base.param_groups, self.slow):
                for p, q in zip(group["params"], slow):
                    q.data.add_(p.data - q.data, alpha=0.5)
                    p.data.copy_(q.data)


def train(name, make, closure_steps=False, steps=5):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 13), nn.Tanh(), nn.Linear(13, 9), nn.Tanh(), nn.Linear(9, 3))
    optimizer = make(model)
    for step in range(steps):
        x, y = torch.randn(10, 6), torch.randint(0, 3, (10,))

        def closure():
            getattr(optimizer, "base", optimizer).zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            return loss

        if closure_steps:
            loss = optimizer.step(closure)
        else:
            loss = closure()
            optimizer.step()
        if step == 2 and isinstance(optimizer, torch.optim.Optimizer):
            state = optimizer.state_dict()
            flat = [v for each in state["state"].values() for v in each.values() if isinstance(v, torch.Tensor)]
            print(name, "state", len(state["state"]), len(flat), sum(v.double().abs().sum().item() for v in flat))
            optimizer.load_state_dict(state)
        print(name, step, loss.item(), sum(p.abs().sum().item() for p in model.parameters()))
    print(name, "next draw", torch.rand(1).item())


def matrices(model):
    return [p for p in model.parameters() if p.ndim == 2]


train("lamb", lambda m: Lamb(m.parameters()))
train("lars", lambda m: Lars(m.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3))
train("shampoo", lambda m: Shampoo(m.parameters()))
train("langevin", lambda m: Langevin(m.parameters()))
train("langevin with closure", lambda m: Langevin(m.parameters()), closure_steps=True)
train("lookahead", lambda m: Lookahead(torch.optim.Adam(m.parameters(), 1e-2)))
train("adafactor", lambda m: torch.optim.Adafactor(m.parameters(), 1e-2))
if hasattr(torch.optim, "Muon"):
    train("muon", lambda m: torch.optim.Muon(matrices(m), 1e-2))
train("lbfgs", lambda m: torch.optim.LBFGS(m.parameters(), 0.1, max_iter=3), closure_steps=True)
train("adamw with closure", lambda m: torch.optim.AdamW(m.parameters(), 1e-2), closure_steps=True)
train(
    "sgd with closure", lambda m: torch.optim.SGD(m.parameters(), 1e-2, momentum=0.9, nesterov=True), closure_steps=True
)
for kind in (
    torch.optim.Rprop,
    torch.optim.ASGD,
    torch.optim.NAdam,
    torch.optim.RAdam,
    torch.optim.Adagrad,
    torch.optim.Adadelta,
    torch.optim.Adamax,
    torch.optim.RMSprop,
):
    train(kind.__name__, lambda m: kind(m.parameters(), 1e-2))
