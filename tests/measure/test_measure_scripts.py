"""``vivace measure`` on what training scripts really do: real processes, values that follow from the scripts."""

from __future__ import annotations

import json
import os
import re
import socket
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from conftest import SCRIPTS, environment
from forked.process import PYTHON, run

# make_model(): Linear 8→16, ReLU, Linear 16→4, by hand: 2·(8·16 + 16·4) = 384 FLOPs forward per sample. Backward
# computes the weights' gradients (384) and, except for the first layer's input, the inputs' (2·16·4 = 128).
FLOPS_PER_SAMPLE = 384 + 384 + 128


def free_port() -> str:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return str(server.getsockname()[1])


def check_parts(record: dict) -> None:
    """The parts of the mean step add up to it, and so does every single step of the series."""
    assert sum(phase["mean"] for phase in record["phases_ms"].values()) == pytest.approx(
        record["step_ms"]["mean"], rel=1e-4
    )
    series = dict(record["series_ms"])
    for number, step_ms in enumerate(series.pop("step")):
        assert sum(values[number] for values in series.values()) == pytest.approx(step_ms, abs=1e-3)


def test_plain_loop(measure: Callable):
    done = measure("plain.py", options=("--steps", "12", "--warmup", "6"))
    record = done.record
    assert done.code == 0
    assert (record["status"], record["steps"], record["batch_size"], record["optimizers"]) == ("complete", 12, 32, 1)
    assert record["global_batch_size"] == 32
    assert record["micro_batches"] == 1
    assert record["parameters"] == 8 * 16 + 16 + 16 * 4 + 4
    assert record["flops"]["model"] == record["flops"]["hardware"] == 32 * FLOPS_PER_SAMPLE
    assert record["samples_per_s"] == pytest.approx(32 * 12 / sum(record["series_ms"]["step"]) * 1e3)
    assert record["energy"]["measured"] is False or record["devices"]
    assert record["clock"] == "host"
    assert record["syncs"] == []
    assert all(record["phases_ms"][name]["median"] > 0 for name in ("loader", "forward", "backward", "optimizer"))
    check_parts(record)


def test_losses_are_the_scripts_own_to_the_last_digit(measure: Callable):
    done = measure("plain.py", options=("--steps", "12", "--warmup", "6"))
    printed = [float(x) for x in re.findall(r"loss (\S+)", done.err)]
    first = done.record["warmup_steps"]
    assert list(done.record["losses"]) == printed[first : first + 12]


def test_validation_is_kept_apart(measure: Callable):
    """Validations come after every tenth step: exactly one lies within ten steps, four batches long."""
    for arguments in ([], ["--no-eval-mode"]):
        record = measure("plain.py", *arguments, options=("--steps", "10")).record
        assert (record["validation"]["runs"], record["validation"]["batches"]) == (1, 4)
        assert record["validation"]["total_ms"] > 0


def test_the_record_and_the_output_are_in_the_runs_folder(vivace: Callable):
    command = [PYTHON, str(SCRIPTS / "plain.py")]
    done = vivace("measure", "--steps", "4", "--name", "first", "--", *command)
    folder = done.runs / "first-001"
    assert sorted(p.name for p in folder.iterdir()) == ["measurement.json", "stderr.log", "stdout.log"]
    assert "loss" in (folder / "stdout.log").read_text()
    assert "loss" in done.out
    assert "ms per step" in done.out
    assert "first-001/measurement.json" in done.out
    again = vivace("measure", "--steps", "4", "--name", "first", "-q", "--", *command)
    assert (again.runs / "first-002" / "measurement.json").exists()
    assert "loss 1." not in again.out


def test_a_secret_on_the_command_line_is_not_in_the_record(measure: Callable):
    done = measure("plain.py", "--api-key", "s3cret-value", WANDB_API_KEY="another-s3cret")
    assert "s3cret" not in done.out
    assert "s3cret" not in (done.folder / "measurement.json").read_text()


def test_gradient_accumulation(measure: Callable):
    record = measure("accumulation.py").record
    assert (record["batch_size"], record["micro_batches"]) == (32, 4)
    assert record["flops"]["model"] == 32 * FLOPS_PER_SAMPLE
    check_parts(record)


@pytest.mark.parametrize("critic", [1, 5])
def test_two_optimizers_make_one_step(measure: Callable, critic: int):
    record = measure("gan.py", "--critic", str(critic)).record
    assert (record["optimizers"], record["batch_size"], record["steps"]) == (2, 16, 6)
    assert record["micro_batches"] == 1  # one batch, however often the networks go over it
    check_parts(record)


def test_no_dataloader(measure: Callable):
    record = measure("no_loader.py", options=("--steps", "20")).record
    assert record["batch_size"] == 12
    assert record["tokens_per_s"] == pytest.approx(10 * record["samples_per_s"])
    assert record["phases_ms"]["loader"]["mean"] == 0
    assert record["validation"]["runs"] == 1
    assert record["loaders"] == []


def test_several_dataloaders(measure: Callable):
    record = measure("several_loaders.py").record
    assert record["batch_size"] == 8 + 24
    assert sorted(loader["batch_size"] for loader in record["loaders"]) == [8, 24]


def test_data_parallel(measure: Callable):
    assert measure("data_parallel.py").record["batch_size"] == 64


def test_loader_with_workers(measure: Callable):
    record = measure("plain.py", "--workers", "2").record
    (train, _valid) = sorted(record["loaders"], key=lambda loader: -loader["num_workers"])
    assert (train["num_workers"], train["prefetch_factor"]) == (2, 2)
    assert record["memory"]["host"]["children"] >= 2
    assert record["memory"]["host"]["children_rss_gib"] > 0


def test_spawned_workers(measure: Callable):
    record = measure("spawned_workers.py").record
    assert (record["status"], record["batch_size"]) == ("complete", 16)


def test_iterable_dataset(measure: Callable):
    record = measure("iterable.py").record
    assert record["batch_size"] == 20
    assert record["loaders"][0]["iterable"] is True


def test_default_device(measure: Callable):
    assert measure("default_device.py").record["batch_size"] == 10


def test_a_teacher_in_eval_mode_is_part_of_the_step(measure: Callable):
    record = measure("teacher.py").record
    assert record["validation"]["runs"] == 0
    assert record["batch_size"] == 32


def test_recomputed_flops_are_the_hardwares_not_the_models(measure: Callable):
    """Four layers of 32 by 32 on 64 samples: 2·64·32·32 each; forward, two backward products, one recomputation."""
    layers = 4 * 2 * 64 * 32 * 32
    flops = measure("checkpointed.py").record["flops"]
    assert (flops["model"], flops["hardware"]) == (3 * layers, 4 * layers)


def test_a_scaler_that_skips_steps(measure: Callable):
    done = measure("scaler.py", options=("--steps", "10"))
    record = done.record
    assert (record["steps"], record["skipped_steps"], record["micro_batches"], record["batch_size"]) == (10, 2, 1, 32)
    printed = [float(x) for x in re.findall(r"loss (\S+)", done.err)]
    assert list(record["losses"]) == printed[record["warmup_steps"] : record["warmup_steps"] + 10]


def test_closure_style_step(measure: Callable):
    done = measure("closure.py")
    record = done.record
    assert record["micro_batches"] == 3
    printed = [float(x) for x in re.findall(r"loss tensor\((\S+),", done.err)]
    own = printed[record["warmup_steps"] : record["warmup_steps"] + record["steps"]]
    assert own == pytest.approx(list(record["losses"]), abs=1e-4)  # the loss at the step's start, not the sum of three
    assert all(record["phases_ms"][name]["mean"] > 0 for name in ("forward", "backward", "optimizer"))
    check_parts(record)


@pytest.mark.parametrize("how", ["wrapped", "in-place", "graph-break", "builtin"])
def test_a_compiled_model_is_compiled_as_without_us(measure: Callable, how: str):
    done = measure("compiled.py", how)
    bare = run([sys.executable, str(SCRIPTS / "compiled.py"), how, "--steps", "20"], SCRIPTS, environment(), 600)
    assert re.findall(r"graphs (\d+)", done.err) == re.findall(r"graphs (\d+)", bare.stdout)
    assert done.record["batch_size"] == 32
    assert done.record["flops"]["model"] == 32 * FLOPS_PER_SAMPLE


def test_torchrun_with_two_ranks(vivace: Callable):
    torchrun = [PYTHON, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", free_port()]
    done = vivace("measure", "--json", "--steps", "6", "--", *torchrun, str(SCRIPTS / "ddp.py"))
    record = done.record
    assert (done.code, record["status"]) == (0, "complete")
    assert [rank["rank"] for rank in record["ranks"]] == [0, 1]
    assert (record["batch_size"], record["global_batch_size"]) == (16, 32)
    assert record["phases_ms"]["communication"]["median"] > 0
    assert record["input_imbalance"] == 0.0
    check_parts(record)


def test_ranks_started_by_spawn(measure: Callable):
    """The second rank's batches are twice as large: 32 samples where the mean is 24."""
    record = measure("ddp.py", "--spawn", "--uneven", TEST_PORT=free_port()).record
    assert [rank["rank"] for rank in record["ranks"]] == [0, 1]
    assert record["global_batch_size"] == 48
    assert record["input_imbalance"] == pytest.approx(32 / 24 - 1)


@pytest.mark.parametrize(
    "what", ["plain", "rare", "kfold", "nested", "attribute-dict", "thread-first", "muon", "penalty"]
)
def test_unusual_scripts_are_measured_and_never_broken(measure: Callable, what: str):
    done = measure("unusual.py", what, options=("--steps", "8", "--warmup", "4"), RANK="", WORLD_SIZE="")
    record = done.record
    assert (done.code, record["status"], record["batch_size"], record["micro_batches"]) == (0, "complete", 32, 1), (
        done.err
    )
    if what == "muon":
        assert record["flops"]["model"] == 32 * FLOPS_PER_SAMPLE
    check_parts(record)


def test_python_dash_m(vivace: Callable):
    done = vivace(
        "measure",
        "--json",
        "--steps",
        "4",
        "--",
        PYTHON,
        "-m",
        "plain",
        cwd=SCRIPTS.parent,
        PYTHONPATH=os.pathsep.join([str(SCRIPTS), os.environ.get("PYTHONPATH", "")]),
    )
    assert done.record["batch_size"] == 32


def test_a_shell_script_that_starts_python_deeper_down(vivace: Callable):
    command = ["sh", str(SCRIPTS / "run.sh"), PYTHON, str(SCRIPTS / "plain.py")]
    done = vivace("measure", "--json", "--steps", "4", "--", *command)
    assert done.record["batch_size"] == 32
    assert "preparing" in done.err


def test_the_users_own_sitecustomize_still_runs(measure: Callable, tmp_path: Path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("import sys; print('mine runs', file=sys.stderr)\n")
    done = measure("plain.py", PYTHONPATH=os.pathsep.join([str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")]))
    assert "mine runs" in done.err
    assert done.record["status"] == "complete"


def test_an_environment_without_vivace_or_its_dependencies(vivace: Callable, tmp_path: Path):
    """The script's Python may be another one: here it sees torch and nothing of what vivace needs."""
    packages = Path(find_spec("torch").origin).parents[1]
    bare = tmp_path / "bare"
    bare.mkdir()
    hidden = (
        "pydantic",
        "rich",
        "typer",
        "psutil",
        "vivace",
        "pynvml",
        "nvidia_ml_py",
        "__editable__",
        "pip",
        "_virtualenv",
    )
    for entry in packages.iterdir():
        if not entry.name.startswith(hidden) and not entry.name.endswith(".pth"):
            (bare / entry.name).symlink_to(entry)
    base = getattr(sys, "_base_executable", sys.executable)
    command = [base, "-s", str(SCRIPTS / "plain.py")]
    done = vivace("measure", "--json", "--steps", "4", "--", *command, PYTHONPATH=str(bare), PYTHONNOUSERSITE="1")
    assert done.record["status"] == "complete"
    assert done.record["batch_size"] == 32


def test_the_embedded_example(vivace_here: Callable):
    done = vivace_here("measure", "--json", "--steps", "3", "--warmup", "1")
    record = done.record
    assert (record["status"], record["batch_size"]) == ("complete", 64)
    assert record["mfu"] > 0
    assert "measured on this device" in record["mfu_detail"]["against"] or record["devices"]
    assert record["profile"]["top"]


@pytest.mark.skipif(find_spec("lightning") is None, reason="lightning is not installed")
def test_lightning(measure: Callable):
    record = measure("lightning_script.py").record
    assert (record["status"], record["batch_size"]) == ("complete", 32)
    check_parts(record)


@pytest.mark.skipif(find_spec("transformers") is None, reason="transformers is not installed")
def test_transformers_trainer(measure: Callable):
    record = measure("transformers_script.py").record
    assert (record["status"], record["batch_size"], record["micro_batches"]) == ("complete", 16, 2)
    assert record["tokens_per_s"] == pytest.approx(12 * record["samples_per_s"])


def test_the_record_on_disk_is_the_one_printed(measure: Callable):
    from vivace.records.measurement import Measurement

    done = measure("plain.py")
    record = Measurement.load(done.folder / "measurement.json")
    assert json.loads(record.to_json()) == done.record
    assert record.origin.command[1].endswith("plain.py")
    assert record.origin.code_sha256 is not None
    assert record.machine.cpu.usable_cores > 0
    assert os.path.basename(record.origin.script or "") == "plain.py"


GAN_IN_EVAL_MODE = """
import time, torch
from torch import nn
from torch.utils.data import DataLoader
G, D = nn.Sequential(nn.Linear(8, 8)), nn.Sequential(nn.Linear(8, 1))
og, od = torch.optim.SGD(G.parameters(), 0.01), torch.optim.SGD(D.parameters(), 0.01)
for x in DataLoader(torch.randn(4000, 8), 16):
    D.train(); fake = G(x); loss = D(x).mean() - D(fake.detach()).mean()
    od.zero_grad(); loss.backward(); od.step()
    D.eval(); loss = D(fake).mean(); og.zero_grad(); loss.backward(); og.step()
"""

FROZEN_BACKBONE = """
import torch
from torch import nn
from torch.utils.data import DataLoader
backbone, head = nn.Sequential(nn.Linear(8, 8)), nn.Sequential(nn.Linear(8, 1))
optimizer = torch.optim.SGD(head.parameters(), 0.01)
for epoch in range(100):
    head.train(); backbone.train(); backbone.eval()
    for x in DataLoader(torch.randn(64, 8), 16):
        with torch.no_grad():
            features = backbone(x)
        optimizer.zero_grad(); head(features).mean().backward(); optimizer.step()
"""


@pytest.mark.parametrize("script", [GAN_IN_EVAL_MODE, FROZEN_BACKBONE])
def test_one_network_in_eval_mode_is_no_validation(vivace_here: Callable, tmp_path: Path, script: str):
    (tmp_path / "train.py").write_text(script)
    record = vivace_here("measure", "--json", "--steps", "20", "--", sys.executable, "train.py").record
    assert record["validation"] == {"total_ms": 0.0, "batches": 0, "runs": 0, "with_grad_ms": 0.0}
    assert record["micro_batches"] == 1


AWKWARD = """
import numpy as np, torch
from torch.utils.data import DataLoader
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
def make(token):
    return torch.randn(4000, 8)
for x in DataLoader(make(token="hf_AbCdEfGhIjKlMnOpQrStUv"), 16, num_workers=int(1), prefetch_factor=np.min([2, 4])):
    for _ in range(2):  # twice over one batch
        model(x).mean().backward()
    optimizer.step(); optimizer.zero_grad()
"""


def test_settings_of_any_type_lines_with_secrets_and_batches_used_twice(vivace_here: Callable, tmp_path: Path):
    (tmp_path / "train.py").write_text(AWKWARD)
    done = vivace_here("measure", "--json", "--steps", "10", "--", sys.executable, "train.py")
    (loader,) = done.record["loaders"]
    assert loader["prefetch_factor"] == 2
    assert "hf_AbCd" not in done.out
    assert "make(token=***)" in loader["where"]["code"]
    assert done.record["micro_batches"] == 1


STEPS_THAT_DIFFER = """
import torch
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for step in range(400):
    for _ in range(1 if step % 2 else 4):
        model(torch.randn(16, 64)).mean().backward()
    optimizer.step(); optimizer.zero_grad()
"""


def test_no_mfu_where_steps_have_different_numbers_of_forwards(vivace_here: Callable, tmp_path: Path):
    (tmp_path / "train.py").write_text(STEPS_THAT_DIFFER)
    record = vivace_here("measure", "--json", "--steps", "12", "--", sys.executable, "train.py").record
    assert record["mfu"] is None
    assert record["flops"]["model"] > 0
    assert any("number of forwards" in note for note in record["notes"])


SWALLOWS = """
import atexit, torch
atexit.register(lambda: print("clean-up ran"))
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
log = open("log.txt", "w")
for step in range(100_000):
    try:
        model(torch.randn(4, 8)).mean().backward(); optimizer.step(); log.write("step\\n")
    except:
        pass
"""


def test_a_script_that_swallows_everything_keeps_its_files_and_its_clean_up(vivace: Callable, tmp_path: Path):
    (tmp_path / "train.py").write_text(SWALLOWS)
    done = vivace("measure", "--json", "--steps", "10", "--", PYTHON, "train.py")
    assert done.code == 0
    assert "clean-up ran" in done.err
    assert len((tmp_path / "log.txt").read_text().splitlines()) > 10
