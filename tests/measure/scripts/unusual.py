"""Things that ordinary scripts do now and then, one a word; each must be measured, and none may break."""

import argparse
import importlib.util
import os
import signal
import sys
import threading
from pathlib import Path

HAS_TORCH = importlib.util.find_spec("torch") is not None  # as libraries probe for it, long before they import it

import torch  # noqa: E402
from common import make_dataset, make_model  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("what")
what = parser.parse_args().what


class AttributeDict(dict):
    """In sys.modules this answers no question the way a module does."""

    def __getattr__(self, name):
        return self[name]


class Muonlike(torch.optim.SGD):
    """An optimizer with matrix products of its own."""

    def step(self, closure=None):
        big = torch.ones(256, 256)
        big @ big
        return super().step(closure)


def batches():
    while True:
        yield from DataLoader(make_dataset(640), 32)


def train() -> None:
    model = make_model()
    optimizer = (Muonlike if what == "muon" else torch.optim.SGD)(model.parameters(), lr=0.1)
    rare = torch.optim.SGD(make_model().parameters(), lr=0.1)
    for step, (inputs, labels) in enumerate(batches()):
        if what == "kfold" and step % 10 == 0:
            model = make_model()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if what == "penalty":
            inputs.requires_grad_()
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        if what == "penalty":
            (slope,) = torch.autograd.grad(loss, inputs, create_graph=True)
            loss = loss + slope.square().mean()
        loss.backward()
        optimizer.step()
        if what == "rare" and step == 5:
            rare.step()
        if what == "killed" and any(
            '"steps": 0' not in f.read_text() for f in Path("vivace-runs").glob("*/progress-*.json")
        ):
            os.kill(os.getpid(), signal.SIGKILL)  # once the outside has been told of a step
        if what == "nested" and step == 3:
            torch.nn.Linear(8, 2)(torch.nested.nested_tensor([torch.randn(2, 8), torch.randn(3, 8)]))


if what == "attribute-dict":
    sys.modules["settings"] = AttributeDict()
if what == "thread-first":
    warm = threading.Thread(target=lambda: make_model()(torch.randn(2, 8)).sum().backward())
    warm.start()
    warm.join()
train()
