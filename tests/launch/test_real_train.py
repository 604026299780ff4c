"""A planned layout runs on a real Slurm: ``vivace submit --plan`` over two emulated nodes, and ``status`` compares."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import pytest
from launch.conftest import Bench

from benchmarks.forked_ranks import outcomes
from vivace.records.layout import Layout
from vivace.records.plan import Plan
from vivace.records.trained import Trained
from vivace.train.planned import settings_of

ONE_A_NODE = """
[cluster.one-a-node]
name = "Two emulated nodes, one GPU each"
gpu = "v100-sxm2-32gb"
gpus_per_node = 1
cores_per_gpu = 1
scheduler = "slurm"
partition = "gpu_p13"
constraint = "v100-32g"
sources = ["tests/launch/test_real_train.py"]
"""
MODEL = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2, "hidden_size": 32,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 64, "vocab_size": 64,
    "max_position_embeddings": 16, "tie_word_embeddings": False,
}  # fmt: skip


@pytest.mark.slow
def test_a_planned_layout_runs_as_planned_on_two_nodes(bench_with_names: Bench):
    bench = bench_with_names
    catalogue = bench.folder / "catalogue.toml"
    catalogue.write_text(catalogue.read_text() + ONE_A_NODE)
    (bench.folder / "config.json").write_text(json.dumps(MODEL))
    words = (
        "plan config.json --cluster one-a-node --gpus 2 --pp 2 --micro-batch 2 --global-batch 8 --precision fp32 "
        "--tokens 512 --save plan.json"
    )
    done = bench.vivace(*words.split())
    assert done.returncode == 0, done.stderr
    done = bench.vivace(
        "submit", "--plan", "plan.json", "--time", "10:00", "--json", "--name", "planned",
        "--venv", str(Path(sys.executable).parents[1]),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (record,) = json.loads(done.stdout)
    assert (record["nodes"], record["gpus"]) == (2, 2)
    assert bench.end(record) == "COMPLETED", bench.err(record)
    assert "layout      pp2,mb2: 2 processes on 2 nodes" in bench.out(record)
    assert "started by  Slurm" in bench.out(record)

    plan = Plan.load(bench.folder / "plan.json")
    (file,) = Path(record["folder"]).glob("gpt-*/trained.json")
    trained = Trained.load(file)
    assert plan.run is not None
    assert (trained.layout, trained.steps, trained.nodes) == (settings_of(plan).layout, plan.run.steps, 2)
    assert trained.parameters == plan.parameters

    with open(file.with_name("metrics.csv"), newline="") as metrics:
        losses = [float(row["loss"]) for row in csv.DictReader(metrics)]
    (alone,) = outcomes(1, [settings_of(plan).model_copy(update={"layout": Layout(micro_batch=8)})])
    assert losses[-1] == pytest.approx(alone.losses[-1], rel=1e-5)

    found = json.loads(bench.vivace("status", "planned", "--json").stdout)
    assert found["global_batch"] == 8
    assert found["not_compared"] is None
    assert "time" in {row["what"] for row in found["planned"]}
