"""When a step is marked to begin, and what has left the graphs' memory by then.

Graphs need a GPU; this is the bookkeeping around them, with every tensor taken for one of a graph's.
"""

from __future__ import annotations

import pytest
import torch

from vivace.practices.engine import cuda_graphs
from vivace.practices.engine.cuda_graphs import GraphMemory


class Loop:
    """A network whose forwards go through ``GraphMemory``, as the practice does it."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.net = torch.nn.Linear(4, 4)
        self.memory = GraphMemory()

    def forward(self) -> torch.Tensor:
        self.memory.before_forward(self.net)
        return self.memory.after_forward(self.net(torch.ones(2, 4)))


@pytest.fixture
def marks(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    marked: list[None] = []
    monkeypatch.setattr(cuda_graphs, "in_graph_memory", lambda _tensor: True)
    monkeypatch.setattr(torch.compiler, "cudagraph_mark_step_begin", lambda: marked.append(None))
    return marked


def test_each_step_of_a_plain_loop_is_marked_and_its_gradients_stay_where_they_are(marks: list[None]):
    loop = Loop()
    for step in range(1, 4):
        loss = loop.forward().sum()
        loss.backward()
        assert len(marks) == step
        loop.net.zero_grad()
    assert not loop.memory.moved


def test_accumulated_gradients_leave_the_graphs_memory_once_a_step(marks: list[None]):
    loop = Loop()
    loop.forward().sum().backward()
    of_graph = loop.net.weight.grad
    assert of_graph is not None
    value = of_graph.clone()
    loop.forward().sum().backward()
    own = loop.net.weight.grad
    assert own is not None
    assert own is not of_graph
    of_graph.fill_(float("nan"))  # as a replay overwrites it
    torch.testing.assert_close(own, 2 * value)
    loop.forward().sum().backward()
    assert loop.net.weight.grad is own  # it was added to in place
    torch.testing.assert_close(own, 3 * value)
    assert len(marks) == 3


def test_gradients_that_are_set_to_zero_move_out_too(marks: list[None]):
    loop = Loop()
    for _ in range(3):
        loop.net.zero_grad(set_to_none=False)
        loop.forward().sum().backward()
    torch.testing.assert_close(loop.net.weight.grad, torch.full((4, 4), 2.0))
    assert len(loop.memory.moved) == 2  # weight and bias


def test_gradients_of_another_network_move_out_too(marks: list[None]):
    loop, other = Loop(), Loop()
    other.memory = loop.memory
    loop.forward().sum().backward()
    of_graph = loop.net.weight.grad
    other.forward().sum().backward()
    assert loop.net.weight.grad is not of_graph
    assert len(marks) == 2


def test_no_step_begins_while_a_forward_waits_for_its_backward(marks: list[None]):
    loop = Loop()
    for step in range(1, 4):
        first = loop.forward()
        with torch.no_grad():
            loop.forward()  # a teacher, a metric
        second = loop.forward()
        (first + second).sum().backward()
        loop.net.zero_grad()
        assert len(marks) == step


def test_outputs_that_no_loss_uses_wait_for_nothing(marks: list[None]):
    """nanoGPT: logits and loss; the logits are still there when the next forward begins."""
    loop = Loop()
    for step in range(1, 4):
        loop.memory.before_forward(loop.net)
        logits = loop.net(torch.ones(2, 4))
        logits, loss = loop.memory.after_forward((logits, logits.sum()))
        loss.backward()
        assert len(marks) == step
    assert logits.requires_grad


def test_a_validation_that_keeps_gradients_and_its_last_loss_does_not_stop_the_marks(marks: list[None]):
    loop = Loop()
    losses = []
    for _ in range(6):
        loss = loop.forward().sum()
        losses.append(loss.item())
    assert len(marks) >= 4
    assert len(set(losses)) == 1


def test_outputs_are_the_scripts_own(marks: list[None]):
    loop = Loop()
    inner = loop.net(torch.ones(2, 4))
    outer = loop.memory.after_forward({"y": inner, "n": 3})
    assert outer["n"] == 3
    assert outer["y"].data_ptr() != inner.data_ptr()
    outer["y"].sum().backward()
    torch.testing.assert_close(loop.net.bias.grad, torch.full((4,), 2.0))
