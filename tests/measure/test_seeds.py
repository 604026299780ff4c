"""Seeds of the user's script under a pair's offset: shifted once, never an error of ours, untouched with offset 0."""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from conftest import environment
from forked import process
from hypothesis import given
from hypothesis import strategies as st

from vivace.measure.inside.comparing.seeds import shift_numpy_seed, shift_python_seed, shift_torch_seed

DRAWS = """
import random
import numpy as np
import torch
from vivace.measure.inside.comparing import seeds

originals = (torch.manual_seed, torch.random.manual_seed, torch.cuda.manual_seed, torch.cuda.manual_seed_all,
             random.seed, np.random.seed)
seeds.install({offset})
torch_draw = lambda: torch.rand(3).tolist()
python_draw = lambda: [random.random() for _ in range(3)]
numpy_draw = lambda: np.random.rand(3).tolist()
{script}
"""


def run(script: str, offset: int) -> Any:
    """What ``script`` prints, as a Python value, in a process whose seeds are shifted by ``offset``."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "draws.py").write_text(DRAWS.format(offset=offset, script=script))
        done = process.run([sys.executable, "draws.py"], Path(folder), environment(), 600)
    assert done.returncode == 0, done.stderr
    return eval(done.stdout)


def torch_draw(seed: int) -> list[float]:
    return torch.rand(3, generator=torch.Generator().manual_seed(seed)).tolist()


def python_draw(seed: Any) -> list[float]:
    own = random.Random(seed)
    return [own.random() for _ in range(3)]


def numpy_draw(seed: Any) -> list[float]:
    return np.random.RandomState(seed).rand(3).tolist()


# How a script seeds and draws, and the draws that follow from seed + 2.
WITH_OFFSET_2 = [
    ("torch.manual_seed(5)", "torch", torch_draw(7)),
    ("torch.manual_seed(seed=5)", "torch", torch_draw(7)),
    ("torch.random.manual_seed(5)", "torch", torch_draw(7)),
    ("torch.manual_seed(np.int64(5))", "torch", torch_draw(7)),
    ("torch.manual_seed(torch.tensor(5))", "torch", torch_draw(7)),
    ("torch.manual_seed(5.0)", "torch", torch_draw(7)),
    ("torch.manual_seed(-3)", "torch", torch_draw(-1)),
    ("torch.manual_seed(2**32 - 1)", "torch", torch_draw(2**32 + 1)),
    ("torch.manual_seed(2**64 - 1)", "torch", torch_draw(1)),
    (
        "torch.cuda.manual_seed_all(9); torch.cuda.manual_seed(np.int64(9)); torch.manual_seed(5)",
        "torch",
        torch_draw(7),
    ),
    ("random.seed(5)", "python", python_draw(7)),
    ("random.seed(a=5)", "python", python_draw(7)),
    ("random.seed(5, 2)", "python", python_draw(7)),
    ("random.seed(np.int64(5))", "python", python_draw(7)),
    ("random.seed('five')", "python", python_draw("five+2")),
    ("random.seed(b'five')", "python", python_draw(b"five+2")),
    ("random.seed(0.5)", "python", python_draw(2.5)),
    ("np.random.seed(5)", "numpy", numpy_draw(7)),
    ("np.random.seed(seed=5)", "numpy", numpy_draw(7)),
    ("np.random.seed(np.uint32(5))", "numpy", numpy_draw(7)),
    ("np.random.seed(2**32 - 1)", "numpy", numpy_draw(1)),
    ("np.random.seed([1, 2])", "numpy", numpy_draw([1, 2, 2])),
    ("np.random.seed(np.array([1, 2], dtype=np.uint32))", "numpy", numpy_draw([1, 2, 2])),
]


def test_every_way_to_seed_is_shifted_once():
    lines = "\n".join(f"{how}; drawn.append({what}_draw())" for how, what, _ in WITH_OFFSET_2)
    drawn = run(f"drawn = []\n{lines}\nprint(drawn)", offset=2)
    for (how, _, expected), values in zip(WITH_OFFSET_2, drawn, strict=True):
        assert values == expected, how


def test_cuda_seeds_are_shifted_once():
    """Without a GPU, torch hands the seeds to a function that keeps them until there is one."""
    script = """
import inspect
seen = []
torch.cuda.random._lazy_call = lambda call, **_: seen.append(inspect.getclosurevars(call).nonlocals["seed"])
torch.manual_seed(5); torch.cuda.manual_seed_all(np.int64(8)); torch.cuda.manual_seed(12)
print(seen)
"""
    assert run(script, offset=2) == [7, 10, 14]


def test_generators_of_the_scripts_own_are_left_alone():
    script = """
print([torch.rand(3, generator=torch.Generator().manual_seed(5)).tolist(), np.random.RandomState(5).rand(3).tolist(),
       random.Random(5).random(), np.random.default_rng(5).random(), np.random.SeedSequence(5).entropy])
"""
    left_alone = [torch_draw(5), numpy_draw(5), python_draw(5)[0], np.random.default_rng(5).random(), 5]
    assert run(script, offset=2) == left_alone


def test_with_offset_0_no_function_is_replaced():
    same = """
now = (torch.manual_seed, torch.random.manual_seed, torch.cuda.manual_seed, torch.cuda.manual_seed_all,
       random.seed, np.random.seed)
print([a is b or a == b for a, b in zip(originals, now)] + [torch_draw(), python_draw(), numpy_draw()])
"""
    assert run(same, offset=0) == [True] * 6 + [torch_draw(1), python_draw(1), numpy_draw(1)]


def test_a_wrong_seed_fails_as_it_does_without_us():
    calls = [
        "np.random.seed(-1)", "np.random.seed(2**32)", "np.random.seed(0.5)", "torch.manual_seed(2**64)",
        "torch.manual_seed('five')", "random.seed(5, 2, 3)", "torch.manual_seed()",
    ]  # fmt: skip
    script = f"""
def outcome(call):
    try:
        eval(call)
    except Exception as error:
        return type(error).__name__, str(error)
ours = [outcome(call) for call in {calls!r}]
torch.manual_seed, torch.random.manual_seed, _, _, random.seed, np.random.seed = originals
print([ours, [outcome(call) for call in {calls!r}]])
"""
    ours, own = run(script, offset=2)
    assert ours == own
    assert None not in own


def test_a_seed_from_the_clock_stays_one():
    script = (
        "random.seed(None); a = random.random(); np.random.seed(None); random.seed(); print([a != random.random()])"
    )
    assert run(script, offset=2) == [True]


@given(st.integers(-(2**63), 2**64 - 1), st.integers(1, 100))
def test_a_shifted_seed_is_one_that_torch_takes(seed: int, offset: int):
    shifted = shift_torch_seed(seed, offset)
    assert -(2**63) <= shifted < 2**64
    assert (shifted - seed - offset) % 2**64 == 0


@given(st.integers(0, 2**32 - 1), st.integers(1, 100))
def test_a_shifted_seed_is_one_that_numpy_takes(seed: int, offset: int):
    shifted = shift_numpy_seed(seed, offset)
    assert 0 <= shifted < 2**32
    assert (shifted - seed - offset) % 2**32 == 0


@given(st.one_of(st.integers(), st.text(), st.binary(), st.floats(-1e6, 1e6)), st.integers(1, 100))
def test_a_shifted_seed_is_one_that_random_takes(seed: Any, offset: int):
    shifted = shift_python_seed(seed, offset)
    random.Random(shifted)
    assert shifted != seed
