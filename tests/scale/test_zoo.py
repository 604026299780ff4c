"""Unedited scripts over ranks: every printed number is that of one process. All: benchmarks/scale_equality.py"""

from __future__ import annotations

import importlib.util
import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import VIVACE, environment
from forked.process import PYTHON
from torch.utils._pytree import tree_flatten

ROOT = Path(__file__).parents[2]
ZOO = Path(__file__).parent / "zoo"
_spec = importlib.util.spec_from_file_location("scale_equality", ROOT / "benchmarks" / "scale_equality.py")
assert _spec is not None
assert _spec.loader is not None
equality = sys.modules["scale_equality"] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(equality)


def run(folder: Path, script: str, *vivace: str) -> subprocess.CompletedProcess[str]:
    command = [PYTHON, str(ZOO / f"{script}.py")]
    words = [*VIVACE, "run", "--no-prove", *vivace, "--", *command] if vivace else command
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=600, env=environment())


def run_all(folder: Path, scripts: tuple[str, ...], *vivace: str) -> subprocess.CompletedProcess[str]:
    """One process for all of them, one after the other: a start takes longer than a script."""
    folder.mkdir()
    together = folder.with_suffix(".py")
    paths = [str(ZOO / f"{script}.py") for script in scripts]
    together.write_text(f"import runpy\nfor path in {paths!r}:\n    runpy.run_path(path, run_name='__main__')\n")
    command = [PYTHON, str(together)]
    words = [*VIVACE, "run", "--no-prove", *vivace, "--", *command] if vivace else command
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=900, env=environment())


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("mode", "ranks", "scripts", "split"),
    [
        (
            "ddp",
            2,
            ("cnn", "char_gpt", "lstm", "keeps_state", "own_loss", "returns_cache", "by_hand", "drawing_datasets"),
            ("Net", "Gpt", "Model", "Sequential"),
        ),
        (
            "ddp",
            3,
            ("gan", "decides", "batch_edits", "layer_hooks", "step_in_backward", "tagger", "stores", "looks_inside"),
            ("Sequential", "Model", "Linear", "RecursiveScriptModule"),
        ),
        ("zero1", 2, ("cnn", "scaler", "own_optimizers"), ("Net", "Model", "Sequential")),
        (
            "fsdp",
            2,
            (
                "cnn",
                "char_gpt",
                "gan",
                "layer_hooks",
                "after_forward",
                "distilled",
                "penalties",
                "own_optimizers",
                "raw_memory",
            ),
            ("Net", "Model", "Gpt", "Sequential", "AveragedModel", "Block", "Embedding"),
        ),
    ],
)
def test_every_number_is_that_of_one_process(
    tmp_path: Path, mode: str, ranks: int, scripts: tuple[str, ...], split: tuple[str, ...]
):
    alone = run_all(tmp_path / "alone", scripts)
    assert alone.returncode == 0, alone.stderr
    together = run_all(tmp_path / "together", scripts, "--ranks", str(ranks), "--with", mode)
    assert together.returncode == 0, together.stderr
    (record,) = (tmp_path / "together").glob("vivace-runs/*/run.json")
    told = json.loads(record.read_text())["told"][mode]["text"]
    assert set(split) == set(told.partition(f" split over {ranks} ranks")[0].split(", "))
    found = equality.difference(alone.stdout, together.stdout)
    assert found is not None, together.stdout  # each line once
    assert found < 1e-12
    files = {path.name for path in (tmp_path / "alone").iterdir()}
    assert {path.name for path in (tmp_path / "together").iterdir()} == {*files, "vivace-runs"}
    for path in (tmp_path / "alone").glob("best.pt"):
        assert_same_content(path, tmp_path / "together" / path.name)


def assert_same_content(alone: Path, together: Path) -> None:
    """Weights, running statistics and states of an optimizer, as they were saved."""
    first, second = (tree_flatten(torch.load(path, weights_only=True)) for path in (alone, together))
    assert first[1] == second[1]
    for expected, found in zip(first[0], second[0], strict=True):
        if isinstance(expected, torch.Tensor):
            assert type(found) is torch.Tensor
            torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)
        else:
            assert found == expected


@pytest.mark.parametrize(
    ("mode", "script", "reason"),
    [
        ("fsdp", ZOO / "functional.py", "torch.func runs a model whose parameters lie on several ranks"),
        ("fsdp", ZOO / "prunes.py", "Linear.weight was replaced by another tensor"),
        ("ddp", "unequal.py", "the ranks have different batches at call 1 of Linear"),
        ("ddp", "drifts.py", "the ranks have different batches at batch 4 of the loaders"),
    ],
)
def test_what_would_be_wrong_is_refused_with_the_reason(tmp_path: Path, mode: str, script: Path | str, reason: str):
    (tmp_path / "unequal.py").write_text(UNEQUAL)
    (tmp_path / "drifts.py").write_text(DRIFTS)
    words = [*VIVACE, "run", "--no-prove", "--ranks", "2", "--with", mode, "--", PYTHON, str(script)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=600, env=environment())
    assert done.returncode == 1, done.stderr
    assert reason in done.stderr


UNEQUAL = """\
import os, torch
torch.manual_seed(os.getpid())
model = torch.nn.Linear(3, 1)
model(torch.randn(8, 3)).sum().backward()
"""
DRIFTS = """\
import os, torch
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
for epoch in range(3):
    for (x,) in DataLoader(TensorDataset(torch.arange(48.0).view(16, 3)), 4, shuffle=True):
        model(x).sum().backward()
    torch.rand(1 + int(os.environ["VIVACE_RANK"]))  # one rank uses the generator more than the other
"""


def test_what_cannot_be_split_runs_whole_and_says_why(tmp_path: Path):
    alone, together = run(tmp_path, "coupled"), run(tmp_path, "coupled", "--ranks", "2")
    found = equality.difference(alone.stdout, together.stdout)
    assert found is not None
    assert found < 1e-12
    assert "ddp does not apply: Coupled runs whole on every rank: output 1, of shape (10, 3)" in together.stderr


def test_a_rank_that_dies_ends_the_others_with_a_sentence(tmp_path: Path):
    script = tmp_path / "dies.py"
    script.write_text(
        "import os, torch\n"
        "model = torch.nn.Linear(3, 1)\n"
        "for step in range(1000):\n"
        "    model(torch.ones(4, 3)).sum().backward()\n"
        "    if step == 2 and os.environ['VIVACE_RANK'] == '1':\n"
        "        os.kill(os.getpid(), 9)\n"
    )
    words = [*VIVACE, "run", "--no-prove", "--ranks", "2", "--with", "ddp", "--", PYTHON, str(script)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=600, env=environment())
    assert done.returncode == 137
    assert "vivace: rank 1 ended with signal 9 (SIGKILL), and the others with it" in done.stderr
    (record,) = tmp_path.glob("vivace-runs/*/run.json")
    assert json.loads(record.read_text())["state"] == "failed"


def test_ranks_share_chance_and_the_first_to_fail_is_named(tmp_path: Path):
    script = tmp_path / "unseeded.py"
    script.write_text(
        "import os, random\n"
        "print(random.random())\n"
        "import numpy, torch\n"
        "print(random.random(), numpy.random.rand(), torch.rand(3).tolist(), torch.randperm(9).tolist(), flush=True)\n"
        "model = torch.nn.Linear(3, 1)\n"
        "for step in range(1000):\n"
        "    if step == 2 and os.environ['VIVACE_RANK'] == '1':\n"
        "        raise ValueError('no such sample\\nat all')\n"
        "    model(torch.ones(4, 3)).sum().backward()\n"
    )
    words = [*VIVACE, "run", "--no-prove", "--ranks", "2", "--name", "unseeded", "--", sys.executable, str(script)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=600, env=environment())
    assert done.returncode == 1, done.stderr
    log = tmp_path / "vivace-runs" / "unseeded-001" / "rank-1.log"
    told = "vivace: rank 1 ended with exit code 1, and the others with it: ValueError: no such sample; its output:"
    assert f"{told} {log}" in done.stderr
    assert len(done.stdout.splitlines()) == 2
    assert log.read_text().splitlines()[:2] == done.stdout.splitlines()


def test_a_script_that_is_distributed_already_is_left_alone(tmp_path: Path):
    script = tmp_path / "own.py"
    script.write_text("import torch.distributed as dist\ndist.init_process_group('gloo')\n")
    words = [*VIVACE, "run", "--no-prove", "--ranks", "2", "--with", "ddp", "--", PYTHON, str(script)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=600, env=environment())
    assert done.returncode == 2
    assert "this script is distributed already" in done.stderr
    assert "torchrun --nproc-per-node 2" in done.stderr


def test_ddp_needs_ranks(tmp_path: Path):
    done = run(tmp_path, "cnn", "--with", "ddp")
    assert done.returncode == 2
    assert "ddp splits the work over ranks, and there is one" in done.stderr


def test_one_vivace_per_rank_as_a_job_starts_them(tmp_path: Path):
    """What `vivace submit --with ddp` does: each task runs `vivace run`, with the variables of torchrun."""
    (tmp_path / "alone").mkdir()
    alone = run(tmp_path / "alone", "fgsm")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [*VIVACE, "run", "--with", "ddp", "--", PYTHON, str(ZOO / "fgsm.py")]
    ranks = []
    for rank in range(2):
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
        env = environment(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), **own)
        ranks.append(
            subprocess.Popen(words, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
    (first, told), (second, _) = (each.communicate(timeout=600) for each in ranks)
    assert [each.returncode for each in ranks] == [0, 0], told
    found = equality.difference(alone.stdout, first)
    assert found is not None
    assert found < 1e-12
    assert second == ""  # rank 0 prints
    assert "ddp applied: Sequential split over 2 ranks" in told
