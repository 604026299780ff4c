"""The course's trainer: its flags, its printouts to the byte, and its old defects mended."""

from __future__ import annotations

import importlib.util
import io
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from forked.process import PYTHON
from PIL import Image
from torch import Tensor, nn

SCRIPT = Path(__file__).parents[2] / "examples" / "dlojz.py"
TINY = ["--model", "resnet18", "--image-size", "32", "-b", "8", "--num-workers", "0"]


def run_script(folder: Path, *flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
    job = ("SLURM_", "WORLD_SIZE")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(job)}
    return subprocess.run(
        [PYTHON, str(SCRIPT), *flags],
        cwd=folder,
        env={**clean, "OMP_NUM_THREADS": "1", **environment},  # tests side by side share the cores
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.fixture(scope="module")
def whole_runs(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, str]]:
    """The same short training twice: 100 images in batches of 8, 13 steps."""
    runs = []
    for _ in range(2):
        folder = tmp_path_factory.mktemp("run")
        result = run_script(folder, *TINY, "--dataset-size", "100")
        assert result.returncode == 0, result.stderr
        assert result.stderr == ""
        runs.append((folder, result.stdout))
    return runs


@pytest.fixture(scope="module")
def one_step_run(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A test run of one step, with loader processes, as a Slurm job of two nodes."""
    result = run_script(
        tmp_path_factory.mktemp("test-run"),
        *TINY[:-1],
        "1",
        *("--dataset-size", "100", "--test", "--test-nsteps", "1", "--no-pin-memory"),
        SLURM_NNODES="2",
        SLURM_NTASKS="8",
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture
def dlojz(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The script as a module, in an empty folder, with a tiny model that notes what it saw."""
    spec = importlib.util.spec_from_file_location("dlojz", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    path = list(sys.path)
    spec.loader.exec_module(module)
    sys.path[:] = path
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("SLURM_") or name == "WORLD_SIZE":
            monkeypatch.delenv(name)
    module.seen = {True: [], False: []}  # type: ignore[attr-defined]  # batch sizes, by training mode

    class Tiny(nn.Module):
        def __init__(self, num_classes: int) -> None:
            super().__init__()
            self.fc = nn.Linear(3, num_classes)

        def forward(self, images: Tensor) -> Tensor:
            module.seen[self.training].append(len(images))
            logits: Tensor = self.fc(images.mean(dim=(2, 3)))
            return logits

    monkeypatch.setattr(module.resnet, "by_name", lambda name, num_classes: Tiny(num_classes))
    return module


def run_here(module: ModuleType, monkeypatch: pytest.MonkeyPatch, *flags: str) -> None:
    base = ["dlojz.py", "--image-size", "16", "-b", "8", "--num-workers", "0", *flags]
    monkeypatch.setattr(sys, "argv", base)
    module.main()


# --- flags ---


def test_flags_and_defaults(dlojz: ModuleType) -> None:
    assert vars(dlojz.build_parser().parse_args([])) == {
        "batch_size": 128,
        "epochs": 1,
        "image_size": 224,
        "lr": 0.1,
        "wd": 0.0,
        "mom": 0.9,
        "test": False,
        "test_nsteps": 50,
        "num_workers": 10,
        "persistent_workers": True,
        "pin_memory": True,
        "non_blocking": True,
        "prefetch_factor": 3,
        "drop_last": False,
        "device": "cpu",
        "model": "resnet152",
        "data": "generated",
        "val_data": None,
        "dataset_size": 1_281_167,
    }
    assert dlojz.VAL_BATCH_SIZE == 256


def test_negative_flags_are_accepted(dlojz: ModuleType) -> None:
    args = dlojz.build_parser().parse_args(
        ["--no-pin-memory", "--no-persistent-workers", "--no-non-blocking", "--no-drop-last"]
    )
    assert (args.pin_memory, args.persistent_workers, args.non_blocking) == (False, False, False)


def test_image_size_with_an_underscore_is_rejected(dlojz: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        dlojz.build_parser().parse_args(["--batch-size", "128", "--image_size", "176"])
    assert stop.value.code == 2
    assert "error: unrecognized arguments: --image_size 176" in capsys.readouterr().err


# --- printouts ---

NUMBER = r"\d+\.?\d*(?:e-?\d+)?"
SECONDS = r"\d:\d\d:\d\d(?:\.\d{6})?"
HEADER = [
    r">>> Training on  1  nodes and  1  processes",
    r"model: Resnet-18",
    r"number of parameters: 11689512",
    r"global batch size: 8 - mini batch size: 8",
    r"Optimizer: SGD \(",
    r"Parameter Group 0",
    r"    dampening: 0",
    r"(?:    \w+: \w+\n)*    lr: 0\.1(?:\n    \w+: [\w.]+)*",
    r"\)",
    r"DATALOADER 0 True True True 3 False",
    r"image batch shape : torch\.Size\(\[8, 3, 32, 32\]\)",
]
STEPS_OF_13 = (2, 3, 4, 6, 7, 8, 10, 11, 12, 13)  # the first step at or past each tenth of 13
TRAINING = [
    rf"Epoch \[1/1\], Step \[{step}/13\], Time: \d+\.\d{{3}}, Loss: \d+\.\d{{4}}, Acc:[01]\.\d{{4}}"
    for step in STEPS_OF_13
]
FOOTER = [
    r"##EVALUATION STEP##",
    r"Epoch \[1/1\], Validation Loss: \d+\.\d{4}, Validation Accuracy: [01]\.\d{4}",
    rf">>> Validation complete in: {SECONDS}",
    rf">>> Training complete in: {SECONDS}",
    rf">>> Validation time: {SECONDS}",
    r">>> Number of batch per epoch: 13",
    r"Max Memory Allocated 0 Bytes",
    r"Last epoch checkpointed to checkpoints/local_8\.pt",
]
TEST_FOOTER = [  # no result of the short validation, and the times of the steps
    rf">>> Training complete in: {SECONDS}",
    rf">>> Training performance time: min {NUMBER} avg {NUMBER} seconds \(\+/- {NUMBER}\)",
    rf">>> Loading performance time: min {NUMBER} avg {NUMBER} seconds \(\+/- {NUMBER}\)",
    rf">>> Forward performance time: {NUMBER} seconds \(\+/- {NUMBER}\)",
    rf">>> Backward performance time: {NUMBER} seconds \(\+/- {NUMBER}\)",
    rf">>> Peak Power during training: (?:{NUMBER} W\)|not measured)",
    rf">>> Validation time estimation: {SECONDS}",
    r">>> Sortie trace #####################################",
    rf'>>>JSON {{"GPU process - Forward/Backward": \[{NUMBER}(?:, {NUMBER}){{1}}\], '
    rf'"CPU process - Dataloader": \[{NUMBER}(?:, {NUMBER}){{1}}\]}}',
    r">>> Number of batch per epoch: 13",
    r"Max Memory Allocated 0 Bytes",
]


def test_every_line_of_a_test_run(
    dlojz: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_here(dlojz, monkeypatch, "--dataset-size", "100", "--test", "--test-nsteps", "2")
    out = capsys.readouterr().out
    shape = r"image batch shape : torch\.Size\(\[8, 3, 16, 16\]\)"
    pattern = "\n".join([shape, TRAINING[0], *TEST_FOOTER]) + "\n"
    assert re.fullmatch(pattern, out[out.index("image batch") :]), out


def test_every_line_of_a_run(whole_runs: list[tuple[Path, str]]) -> None:
    pattern = "\n".join([*HEADER, *TRAINING, *FOOTER]) + "\n"
    assert re.fullmatch(pattern, whole_runs[0][1]), whole_runs[0][1]


def test_two_runs_give_the_same_numbers(whole_runs: list[tuple[Path, str]]) -> None:
    def results(text: str) -> list[str]:
        lines = [line for line in text.splitlines() if line.startswith("Epoch")]
        return [re.sub(r"Time: [\d.]+", "", line) for line in lines]

    first, second = (results(text) for _, text in whole_runs)
    assert len(first) == 11
    assert first == second
    weights = [torch.load(folder / "checkpoints" / "local_8.pt") for folder, _ in whole_runs]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_checkpoint_holds_the_state_of_the_model(whole_runs: list[tuple[Path, str]]) -> None:
    weights = torch.load(whole_runs[0][0] / "checkpoints" / "local_8.pt")
    assert weights["fc.weight"].shape == (1000, 512)
    assert weights["bn1.num_batches_tracked"].item() == 13


def test_one_step_with_a_loader_process_in_a_slurm_job(one_step_run: str) -> None:
    lines = one_step_run.splitlines()
    assert lines[0] == ">>> Training on  2  nodes and  8  processes"
    assert "global batch size: 64 - mini batch size: 8" in lines
    assert "DATALOADER 1 True False True 3 False" in lines
    assert ">>> Training performance time: min nan avg nan seconds (+/- nan)" in lines
    assert any(line.startswith(">>> Validation time estimation: ") for line in lines)
    assert not any("checkpoint" in line for line in lines)  # none in a test run
    assert lines[-1] == "Max Memory Allocated 0 Bytes"


# --- the old defects, one by one (D-10) ---


@pytest.mark.parametrize("n_batch", [*range(1, 40), 100, 10_009, 10_010])
def test_log_cadence_is_ten_per_epoch(dlojz: ModuleType, n_batch: int) -> None:
    logged = [i for i in range(n_batch) if dlojz.is_log_step(i, n_batch)]
    assert len(logged) == min(10, n_batch)
    assert logged[-1] == n_batch - 1
    if n_batch % 10 == 0:  # as it was where it was right
        assert logged == [i for i in range(n_batch) if (i + 1) % (n_batch // 10) == 0]


def test_short_validation_is_twenty_batches_and_the_estimate_counts_them(
    dlojz: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spent = validations_of(dlojz, monkeypatch)
    monkeypatch.setattr(dlojz, "VAL_BATCH_SIZE", 1)
    run_here(dlojz, monkeypatch, "--test", "--test-nsteps", "2", "--dataset-size", "641")  # 25 to validate
    assert dlojz.seen[False] == [1] * 20
    assert dlojz.seen[True] == [8, 8]
    out = capsys.readouterr().out
    assert spent == [(20, 25)]
    assert ">>> Validation time estimation: " in out


def test_estimate_of_a_small_validation_set_is_its_own_time(dlojz: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    spent = validations_of(dlojz, monkeypatch)
    run_here(dlojz, monkeypatch, "--test", "--test-nsteps", "2", "--dataset-size", "100")
    assert dlojz.seen[False] == [4]
    assert spent == [(1, 1)]


def validations_of(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """What the chronometer is told: batches that were run, and batches of a whole validation."""
    told = []

    class Noting(module.Chronometer):  # type: ignore[name-defined,misc]
        def display(self, val_steps: int) -> None:
            told.append((self._validation_steps, val_steps))
            super().display(val_steps)

    monkeypatch.setattr(module, "Chronometer", Noting)
    return told


def test_drop_last_drops_training_images_only(dlojz: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dlojz, "VAL_BATCH_SIZE", 3)
    run_here(dlojz, monkeypatch, "--dataset-size", "100", "--drop-last")
    assert dlojz.seen[True] == [8] * 12
    assert dlojz.seen[False] == [3, 1]


def test_a_batch_that_cannot_be_filled_is_told(dlojz: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match="--no-drop-last"):
        run_here(dlojz, monkeypatch, "--dataset-size", "7", "--drop-last")


def test_validation_follows_the_image_size(dlojz: ModuleType, folder_of_images: Path) -> None:
    for size in (32, 224):
        args = dlojz.build_parser().parse_args(["--data", str(folder_of_images), "--image-size", str(size)])
        train, val = dlojz.build_datasets(args)
        assert train[0][0].shape == val[0][0].shape == (3, size, size)


def test_a_test_run_may_span_epochs(dlojz: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    run_here(dlojz, monkeypatch, "--test", "--test-nsteps", "5", "--dataset-size", "16", "-e", "9")
    assert dlojz.seen[True] == [8] * 5
    assert len(dlojz.seen[False]) == 3  # two whole epochs, and the last step


def test_slurm_names_the_checkpoint(
    dlojz: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SLURM_JOBID", "4321")
    monkeypatch.setenv("SLURM_NTASKS", "2")
    run_here(dlojz, monkeypatch, "--dataset-size", "8")
    assert capsys.readouterr().out.endswith("Last epoch checkpointed to checkpoints/4321_16.pt\n")
    assert Path("checkpoints/4321_16.pt").is_file()


# --- other data ---


@pytest.fixture
def folder_of_images(tmp_path: Path) -> Path:
    for split, count in {"train": 5, "val": 2}.items():
        for shade, name in enumerate(("cat", "dog", "eel")):
            (tmp_path / split / name).mkdir(parents=True)
            for i in range(count):
                Image.new("RGB", (40, 30), (shade * 80, i, 0)).save(tmp_path / split / name / f"{i}.jpg")
    return tmp_path


def test_training_on_a_folder(
    dlojz: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    folder_of_images: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run_here(dlojz, monkeypatch, "--data", str(folder_of_images))
    assert dlojz.seen == {True: [8, 7], False: [6]}
    assert "number of parameters: 12\n" in capsys.readouterr().out  # three classes


def test_training_on_parquet(dlojz: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    Image.new("RGB", (20, 20), (200, 10, 0)).save(buffer, "JPEG")
    for name, count in {"train": 11, "other": 3}.items():
        table = pa.table({"image": [buffer.getvalue()] * count, "label": [i % 2 for i in range(count)]})
        pq.write_table(table, tmp_path / f"{name}.parquet")
    data = str(tmp_path / "train.parquet")
    with pytest.raises(SystemExit, match="--val-data"):
        run_here(dlojz, monkeypatch, "--data", data)
    run_here(dlojz, monkeypatch, "--data", data, "--val-data", str(tmp_path / "other.parquet"))
    assert dlojz.seen == {True: [8, 3], False: [3]}
