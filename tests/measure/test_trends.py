"""What changes over the steps: a steady rise is told from a jump, a first fill and noise; compilations have lines."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.measure.trends import over_time, rise
from vivace.protocol.over_time import SeenMemorySeries

SEEDS = st.integers(0, 10_000)


@given(SEEDS, st.floats(0.3, 50.0), st.integers(12, 60))
def test_a_leak_is_found_with_its_size_in_noise_of_half_of_it(seed, slope, steps):
    draw = random.Random(seed)
    values = [300 + slope * n + draw.uniform(0, slope / 2) for n in range(steps)]
    assert rise(range(steps), values) == pytest.approx(slope, rel=0.1)


@given(SEEDS, st.integers(12, 60))
def test_noise_a_jump_and_a_first_fill_are_no_leak(seed, steps):
    draw = random.Random(seed)
    jump = draw.randrange(steps)
    assert rise(range(steps), [300.0 + 500 * (n >= jump) for n in range(steps)]) is None
    assert rise(range(steps), [300 + 100 * min(n, steps // 4) for n in range(steps)]) is None


def test_memory_that_grows_has_an_end_and_steps_that_slow_down_are_told():
    grows = SeenMemorySeries(list(range(20)), [1000.0 + 180 * n for n in range(20)], free_mib=90_000.0)
    steady = SeenMemorySeries(list(range(20)), [1000.0] * 20, free_mib=90_000.0)
    found = over_time([10 + 0.5 * n for n in range(20)], grows, steady, None)
    assert found is not None
    assert found.sentences() == [
        "host memory grows by 180 MiB a step: out of memory in about 500 steps",
        "steps slow down: each takes 0.5 ms longer than the one before",
    ]
    assert over_time([10.0] * 20, steady, None, None) is None


SCRIPT = """
import torch
from vivace.measure.inside.facts.compiling import describe_compiling

assert describe_compiling() is None

@torch.compile(backend="eager")
def f(x):
    y = x + 1
    print("breaks the graph")
    return y * 2

f(torch.ones(3)), f(torch.ones(4, 4)), f(torch.ones(3, dtype=torch.float64))
seen = describe_compiling()
(one,) = seen.breaks
compiled = [(c.function, c.line, c.times) for c in seen.compiled]
print((one.function, one.line, one.times >= 1), compiled[:1], seen.reasons)
"""


def test_compilations_and_graph_breaks_have_their_function_and_line(tmp_path: Path):
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    told = done.stdout.splitlines()[-1]
    assert "('f', 10, True)" in told
    assert "('f', 7, " in told
    assert "print" in told or "builtin" in told


LEAK = """
import torch
from common import make_model
model = make_model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
kept = []
for step in range(400):
    optimizer.zero_grad()
    model(torch.randn(32, 8)).sum().backward()
    kept.append(torch.ones(2 << 20))  # 8 MiB
    optimizer.step()
"""


def test_a_script_that_keeps_a_tensor_of_every_step_leaks(vivace_here, tmp_path: Path):
    scripts = Path(__file__).parent / "scripts"
    (tmp_path / "leak.py").write_text(f"import sys; sys.path.insert(0, {str(scripts)!r})\n{LEAK}")
    options = ("--steps", "15", "--no-profile")
    done = vivace_here("measure", "--json", *options, "--", sys.executable, str(tmp_path / "leak.py"))
    (growth,) = done.record["over_time"]["growth"]
    assert growth["kind"] == "host"
    assert growth["mib_per_step"] == pytest.approx(8.0, rel=0.1)
    assert growth["steps_left"] > 100
