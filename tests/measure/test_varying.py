"""Shapes that vary, cells called in a loop, gradients exchanged too often, memory asked for anew: seen and counted."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from vivace.measure.inside.facts.input_shapes import describe_input_shapes, elements_of
from vivace.measure.inside.facts.memory import allocator_use
from vivace.measure.inside.profiling.kernels import analyse
from vivace.measure.inside.steps.timeline import Step

SCRIPT = Path(__file__).parent / "scripts" / "varying.py"
CALL = next(n for n, line in enumerate(SCRIPT.read_text().splitlines(), start=1) if "# one position in time" in line)


def step(*shapes: tuple[int, ...]) -> Step:
    return Step(forwards=[{"shape": shape, "grad": True} for shape in shapes])


def test_shapes_are_counted_and_new_ones_told_from_known_ones():
    steps = [step((2, 5)), step((2, 7)), step((2, 5)), step((2, 9))]
    inputs = describe_input_shapes(steps, earlier=[step((2, 5))])
    assert inputs == {"repeats": [2, 1, 1], "new": 2, "elements": 13.0, "squares": (100 + 196 + 100 + 324) / 4}


def test_a_step_without_forwards_says_nothing_about_shapes():
    assert describe_input_shapes([Step()], []) == {"repeats": [], "new": 0, "elements": None, "squares": None}


@given(st.lists(st.integers(1, 6), max_size=30), st.lists(st.integers(1, 6), max_size=10))
def test_repeats_add_up_to_the_steps_and_new_shapes_are_among_the_different_ones(lengths: list, before: list):
    inputs = describe_input_shapes([step((3, n)) for n in lengths], [step((3, n)) for n in before])
    assert sum(inputs["repeats"]) == len(lengths)
    assert inputs["new"] == len(set(lengths) - set(before))


def test_elements_are_those_of_all_forwards_of_a_step():
    assert elements_of(step((2, 3), (4,))) == 10


def test_the_allocator_is_judged_by_what_it_did_between_two_counts():
    before = {"num_device_alloc": 5, "num_device_free": 1, "num_alloc_retries": 0, "segment.all.allocated": 9}
    after = {"num_device_alloc": 45, "num_device_free": 31, "num_alloc_retries": 2, "segment.all.allocated": 49}
    assert allocator_use(before, after, 40) == {
        "steps": 40, "device_allocs": 40, "device_frees": 30, "segments": 40, "retries": 2,
    }  # fmt: skip


def test_where_torch_does_not_count_calls_new_segments_stand_for_them():
    use = allocator_use({"segment.all.allocated": 3}, {"segment.all.allocated": 7}, 10)
    assert use == {"steps": 10, "device_allocs": 4, "device_frees": None, "segments": 4, "retries": None}
    assert allocator_use(None, {"segment.all.allocated": 7}, 10) is None


def test_the_hosts_calls_into_the_runtime_are_summed_by_name():
    def call(name: str, us: float, category: str = "cuda_runtime") -> dict:
        return {"ph": "X", "cat": category, "name": name, "ts": 0.0, "dur": us}

    events = [call("cudaMalloc", 3000), call("cudaMalloc", 1000), call("cuMemMap", 500, "cuda_driver"), call("x", 1)]
    runtime = analyse([*events, {**call("gemm", 100, "kernel")}], steps=2)["runtime"]
    assert runtime[0] == {"name": "cudaMalloc", "per_step": 1.0, "ms_per_step": 2.0}
    assert runtime[1] == {"name": "cuMemMap", "per_step": 0.5, "ms_per_step": 0.25}


def test_a_job_whose_lengths_vary_says_how(measure):
    """Steps 10 to 29 have four lengths that come again and three (steps 14, 21 and 28) that are new."""
    record = measure("varying.py", options=("--steps", "20", "--warmup", "10")).record
    assert sum(record["inputs"]["repeats"]) == 20
    assert record["inputs"]["new"] == 3
    assert sorted(record["inputs"]["repeats"])[:3] == [1, 1, 1]
    assert record["allocator"] is None  # no GPU
    assert (record["gradient_syncs"], record["micro_batches"]) == (2, 2)
    (cell,) = record["structure"]["cells"]
    assert (cell["name"], cell["inputs"], cell["hidden"]) == ("LSTMCell", 8, 16)
    assert cell["where"]["line"] == CALL
    assert cell["calls"] == 2 * 6  # FLOPs are counted in the third step, of six positions


def test_gradients_that_are_exchanged_once_a_step_are_counted_once(measure):
    record = measure("varying.py", "--no-sync", options=("--steps", "4", "--warmup", "3", "--no-profile")).record
    assert (record["gradient_syncs"], record["micro_batches"]) == (1, 2)


def test_compiling_again_in_the_timed_steps_is_counted(measure):
    """Steps 10 to 17 meet the lengths of steps 12 and 16 for the first time."""
    record = measure("recompiled.py", options=("--steps", "8", "--warmup", "10", "--no-profile", "--no-flops")).record
    assert record["recompiled"] == 2
    assert record["inputs"]["new"] == 2
