"""Training without an optimizer object, in the ways people write it. Prints each step's loss with all its digits."""

import sys

import torch
from common import make_dataset, make_model
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

LR, BATCH, STEPS = 0.1, 32, 200
what = sys.argv[1]
steps = int(sys.argv[2]) if len(sys.argv) > 2 else STEPS
inputs, labels = make_dataset(64 * BATCH).tensors
model = make_model()


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    at = step % 64 * BATCH
    return inputs[at : at + BATCH], labels[at : at + BATCH]


def update(parameters, scale: float = 1.0) -> None:
    """Through ``.data``, which no version counter shows."""
    for p in parameters:
        p.data.add_(p.grad, alpha=-LR * scale)


def loss_of(step: int) -> torch.Tensor:
    x, y = batch(step)
    return cross_entropy(model(x), y)


def plain() -> None:
    for step in range(steps):
        model.zero_grad()
        loss = loss_of(step)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        update(model.parameters())
        print(f"loss {loss.item()!r}")


def loader() -> None:
    """With a DataLoader, a validation after every tenth step, and in-place updates under no_grad."""
    for step, (x, y) in enumerate(DataLoader(make_dataset(steps * BATCH), BATCH)):
        loss = cross_entropy(model(x), y)
        loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= LR * p.grad
                p.grad = None
        print(f"loss {loss.item()!r}")
        if step % 10 == 9:
            model.eval()
            with torch.no_grad():
                model(inputs)
            model.train()


def accumulation() -> None:
    for step in range(4 * steps):
        (loss_of(step) / 4).backward()
        if step % 4 == 3:
            update(model.parameters())
            model.zero_grad()


def gan() -> None:
    other = make_model()
    for step in range(steps):
        x, y = batch(step)
        for _ in range(int(sys.argv[3])):
            model.zero_grad()
            cross_entropy(model(x), y).backward()
            update(model.parameters())
        other.zero_grad()
        (cross_entropy(other(x), y) + 0 * cross_entropy(model(x), y)).backward()
        update(other.parameters())


def sam() -> None:
    """Two backward passes over one batch; parameters change after both."""
    for x, y in DataLoader(make_dataset(steps * BATCH), BATCH):
        model.zero_grad()
        cross_entropy(model(x), y).backward()
        moves = [0.05 * p.grad for p in model.parameters()]
        for p, move in zip(model.parameters(), moves, strict=True):
            p.data.add_(move)
        model.zero_grad()
        cross_entropy(model(x), y).backward()
        for p, move in zip(model.parameters(), moves, strict=True):
            p.data.sub_(move)
        update(model.parameters())


def functional() -> None:
    """New tensors in every step, as in the textbooks."""
    weights = {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters()}
    for step in range(steps):
        x, y = batch(step)
        loss = cross_entropy(torch.func.functional_call(model, weights, x), y)
        gradients = torch.autograd.grad(loss, list(weights.values()))
        updated = [(w - LR * g).detach().requires_grad_() for w, g in zip(weights.values(), gradients, strict=True)]
        weights = dict(zip(weights, updated, strict=True))
        print(f"loss {loss.item()!r}")


def functional_in_place() -> None:
    for step in range(steps):
        loss = loss_of(step)
        gradients = torch.autograd.grad(loss, model.parameters())  # a generator: it can be gone through only once
        for p, g in zip(model.parameters(), gradients, strict=True):
            p.data.sub_(LR * g)
        print(f"loss {loss.item()!r}")


def tensors() -> None:
    """No module at all."""
    weights = [torch.randn(8, 16).mul(0.1).requires_grad_(), torch.randn(16, 4).mul(0.1).requires_grad_()]
    for step in range(steps):
        x, y = batch(step)
        loss = cross_entropy((x @ weights[0]).relu() @ weights[1], y)
        for w in weights:
            w.grad = None
        loss.backward()
        update(weights)
        print(f"loss {loss.item()!r}")


def hooks() -> None:
    """Each parameter's own optimizer steps as soon as its gradient is there."""
    optimizers = {p: torch.optim.SGD([p], lr=LR) for p in model.parameters()}

    def step_now(p: torch.Tensor) -> None:
        optimizers[p].step()
        optimizers[p].zero_grad()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(step_now)
    for step in range(steps):
        loss = loss_of(step)
        loss.backward()
        print(f"loss {loss.item()!r}")


def late() -> None:
    """An optimizer that steps after 64 backward passes."""
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    for step in range(64 * steps):
        (loss_of(step) / 64).backward()
        if step % 64 == 63:
            optimizer.step()
            optimizer.zero_grad()


def then_an_optimizer() -> None:
    """Twelve steps by hand, then an optimizer that accumulates two micro-batches."""
    for step in range(12):
        model.zero_grad()
        loss_of(step).backward()
        update(model.parameters())
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    for step in range(2 * steps):
        loss_of(step).backward()
        if step % 2:
            optimizer.step()
            optimizer.zero_grad()


def irregular() -> None:
    """Updates after 1, 2, 3, … backward passes."""
    done = 0
    for update_after in range(1, 40):
        for _ in range(update_after):
            loss_of(done).backward()
            done += 1
        update(model.parameters())
        model.zero_grad()


def never() -> None:
    """Gradients, but no update."""
    for step in range(steps):
        loss_of(step).backward()


globals()[what]()
print("finished")
