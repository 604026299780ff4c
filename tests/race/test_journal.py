"""The journal of a run: its clock without compilation, its steps and energy at any moment."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import environment

from vivace.measure.starting import environment_for
from vivace.protocol.journal import Kind, Note, journal_name
from vivace.protocol.request import Entry, ProcessRequest
from vivace.race.journal import Journal


def write(folder: Path, *notes: Note, rank: int = 0) -> None:
    with open(folder / journal_name(rank, 100 + rank), "a") as file:
        file.writelines(note.to_line() for note in notes)


def test_steps_samples_compiling_and_energy_at_a_moment(tmp_path: Path):
    journal = Journal(tmp_path)
    journal.read()
    assert (journal.begun_at, journal.steps_at(5.0), journal.joules(5.0)) == (None, (None, None), None)
    write(tmp_path, Note(Kind.BEGIN, 10.0), Note(Kind.STEP, 12.0, 1, 32), Note(Kind.COMPILED, 14.0, seconds=1.5))
    write(tmp_path, Note(Kind.BEGIN, 9.0), Note(Kind.STEP, 20.0, 7, 7), rank=1)
    journal.read()
    write(tmp_path, Note(Kind.STEP, 16.0, 3, 96), Note(Kind.COMPILED, 18.0, seconds=1.0))
    journal.read()
    assert journal.begun_at == 9.0
    assert [journal.steps_at(at) for at in (11.0, 12.0, 15.9, 16.0, 99.0)] == [
        (0, None), (1, 32), (1, 32), (3, 96), (3, 96)
    ]  # fmt: skip
    assert [journal.compiling_s(at) for at in (12.0, 13.0, 14.0, 17.5, 30.0)] == [0.0, 0.5, 1.5, 2.0, 2.5]
    for rank in (0, 1):
        write(tmp_path, *(Note(Kind.ENERGY, float(at), joules=1000 + 50 * at) for at in range(8, 30)), rank=rank)
    journal.read()
    assert journal.joules(19.0) == pytest.approx(2 * 50 * (19 - 9))


@pytest.mark.parametrize(
    "line", ["{}", "[]", '{"kind": "other", "at": 1}', '{"kind": "step", "at": 1, "more": 2}', "x"]
)
def test_what_is_no_note_is_refused(line: str):
    with pytest.raises(ValueError, match=r"not a note|Expecting|not a valid|attribute"):
        Note.from_line(line)


SCRIPTS = {
    "two optimizers": (
        """
generator, judge = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
first, second = (torch.optim.SGD(m.parameters(), 0.1) for m in (generator, judge))
for step in range(5):
    for optimizer in (first, second):
        optimizer.zero_grad()
        judge(generator(torch.randn(8, 4))).mean().backward()
        optimizer.step()
""",
        (5, 80),
    ),
    "checkpointing": (
        """
from torch.utils.checkpoint import checkpoint
block, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.block, self.head = block, head
    def forward(self, x):
        return self.head(checkpoint(self.block, x, use_reentrant=False))
net = Net()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for step in range(6):
    net(torch.randn(8, 4)).mean().backward()
    optimizer.step()
""",
        (6, 48),
    ),
    "without an optimizer": (
        """
weight = torch.zeros(4, requires_grad=True)
for step in range(7):
    (torch.randn(8, 4) @ weight).mean().backward()
    with torch.no_grad():
        weight -= 0.1 * weight.grad
""",
        (7, None),
    ),
    "validation is not training": (
        """
net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for step in range(3):
    net(torch.randn(8, 4)).mean().backward()
    optimizer.step()
    with torch.no_grad():
        net(torch.randn(100, 4))
""",
        (3, 24),
    ),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_what_a_script_does_is_counted(tmp_path: Path, name: str):
    from forked.process import run

    code, counted = SCRIPTS[name]
    (tmp_path / "train.py").write_text("import torch\n" + code)
    request = ProcessRequest(str(tmp_path), entry=Entry.PRACTICES, measure=False, journal=True)
    done = run([sys.executable, "train.py"], tmp_path, environment_for(request, environment()), 600)
    assert done.returncode == 0, done.stderr
    journal = Journal(tmp_path)
    journal.read()
    assert journal.steps_at(float("inf")) == counted


def test_what_compiling_takes_is_noted(tmp_path: Path):
    """A fresh process: nothing compiled may be forked. The eager backend costs a second less than inductor."""
    (tmp_path / "train.py").write_text(
        "import torch\nnet = torch.compile(torch.nn.Linear(4, 1), backend='aot_eager')\n"
        "optimizer = torch.optim.SGD(net.parameters(), 0.1)\nfor step in range(3):\n"
        "    net(torch.randn(8, 4)).mean().backward()\n    optimizer.step()\n"
    )
    request = ProcessRequest(str(tmp_path), entry=Entry.PRACTICES, measure=False, journal=True)
    subprocess.run([sys.executable, "train.py"], cwd=tmp_path, env=environment_for(request, environment()), check=True)
    journal = Journal(tmp_path)
    journal.read()
    assert journal.steps_at(float("inf")) == (3, 24)
    assert journal.compiling_s(float("inf")) > 0
