"""The public-style examples run on a CPU for a few steps, and say what a script of their kind says."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from pathlib import Path

import pytest
from conftest import environment
from forked.process import PYTHON, can_fork, run

EXAMPLES = Path(__file__).parents[2] / "examples"
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def run_example(name: str, *flags: str, folder: Path, launcher: tuple[str, ...] = ()) -> subprocess.CompletedProcess:
    command = [PYTHON, *launcher, str(EXAMPLES / name), *flags]
    without_gpu = environment(CUDA_VISIBLE_DEVICES="")
    if can_fork(command, without_gpu, folder):
        return run(command, folder, without_gpu, 600)
    return subprocess.run(command, cwd=folder, env=without_gpu, capture_output=True, text=True, timeout=600)


# A thread of gloo's lets go of the last all-reduce while Python already ends (pytorch issue 190489): one exit of ten on
# a busy machine, with the training done and printed.
ABORTED_AT_EXIT = "terminate called without an active exception"


def output_of(name: str, *flags: str, folder: Path, launcher: tuple[str, ...] = ()) -> str:
    for _ in range(4):
        done = run_example(name, *flags, folder=folder, launcher=launcher)
        if ABORTED_AT_EXIT not in done.stderr:
            break
    assert done.returncode == 0, done.stderr
    return done.stdout


def losses(text: str, pattern: str) -> list[float]:
    return [float(value) for value in re.findall(pattern + r"\s*([0-9.]+)", text)]


TINY_GPT = ("--layers", "1", "--width", "32", "--heads", "2", "--length", "16", "-b", "8", "--lr", "3e-3")


def test_gpt_learns_generated_phrases_and_validates(tmp_path: Path) -> None:
    flags = (*TINY_GPT, "--steps", "61", "--warmup-steps", "5", "--eval-interval", "30", "--log-interval", "20")
    out = output_of("gpt.py", *flags, "--generated-tokens", "4000", folder=tmp_path)
    trained = losses(out, r"step \d+: loss")
    assert len(trained) == 4
    assert trained[-1] < trained[0] - 0.3
    assert len(losses(out, "validation loss")) == 2


def test_gpt_reads_a_text_character_by_character(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("hello world, " * 200, encoding="utf-8")
    out = output_of("gpt.py", *TINY_GPT, "--text", "text.txt", "--steps", "3", folder=tmp_path)
    (first,) = losses(out, "step 0: loss")
    assert 1.5 < first < 3.0  # ten different characters: log(10) = 2.3 before anything is learnt


def test_image_classifier_trains_validates_and_saves_the_unwrapped_model(tmp_path: Path) -> None:
    pytest.importorskip("PIL", reason="Pillow is not installed: it makes and decodes the JPEG images")
    import torch

    flags = ("-a", "resnet18", "--image-size", "32", "-b", "8", "-j", "0", "--images", "24", "--classes", "5")
    out = output_of("image_classifier.py", *flags, "--epochs", "1", "--save", "last.pt", folder=tmp_path)
    assert re.search(r"epoch 0 \[0/3\].*loss .*acc@1 .*acc@5", out)
    assert "validation  loss" in out
    state = torch.load(tmp_path / "last.pt")["state_dict"]
    assert state["fc.weight"].shape == (5, 512)  # no "module." of DataParallel


def test_char_lm_learns(tmp_path: Path) -> None:
    flags = ("--epochs", "1", "--characters", "40000", "--hidden", "32", "--bptt", "32", "-b", "8")
    out = output_of("char_lm.py", *flags, folder=tmp_path)
    trained = losses(out, r"step \d+ loss")
    assert trained[-1] < trained[0]
    assert len(losses(out, "validation loss")) == 1


def test_gan_steps_both_networks(tmp_path: Path) -> None:
    flags = ("--epochs", "2", "--images", "32", "-b", "8", "--image-size", "16", "--features", "4", "--workers", "0")
    out = output_of("gan.py", *flags, folder=tmp_path)
    lines = re.findall(r"Loss_D ([0-9.]+) Loss_G ([0-9.]+)", out)
    assert len(lines) == 2
    assert lines[0] != lines[1]


def test_ddp_trains_on_two_processes(tmp_path: Path) -> None:
    flags = ("--epochs", "2", "--samples", "320", "--width", "32", "--blocks", "1", "-b", "32", "--lr", "1e-2")
    out = output_of("ddp.py", *flags, folder=tmp_path, launcher=tuple(TORCHRUN))
    trained = losses(out, r"step 0/5 loss")  # 320 samples, two processes of 32
    assert len(trained) == 2
    assert trained[1] < trained[0]


LIBRARIES = {"lightning_module.py": ("lightning", "pytorch_lightning"), "transformers_trainer.py": ("transformers",)}


@pytest.mark.parametrize("script", LIBRARIES)
def test_an_absent_library_is_told_in_one_sentence(script: str, tmp_path: Path) -> None:
    present = [name for name in LIBRARIES[script] if importlib.util.find_spec(name)]
    if present:
        pytest.skip(f"{present[0]} is installed")
    done = run_example(script, folder=tmp_path)
    assert done.returncode == 1
    assert re.fullmatch(r"this example needs \w+: pip install [\w ]+\n", done.stderr)


def test_lightning_module_trains(tmp_path: Path) -> None:
    if not any(importlib.util.find_spec(name) for name in LIBRARIES["lightning_module.py"]):
        pytest.skip("Lightning is not installed")
    flags = ("--max-steps", "4", "--batch-size", "8", "--width", "4", "--image-size", "8", "--images", "64")
    done = run_example("lightning_module.py", *flags, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "max_steps=4" in done.stdout + done.stderr


def test_transformers_trainer_trains(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    flags = ("--layers", "1", "--width", "16", "--heads", "2", "--length", "16", "-b", "4", "--vocab-size", "64")
    out = output_of("transformers_trainer.py", *flags, "--max-steps", "10", folder=tmp_path)
    assert "train_loss" in out


@pytest.mark.parametrize(("model", "lr"), [("LSTM", "5"), ("Transformer", "1")])
def test_word_lm_learns_without_an_optimizer(tmp_path: Path, model: str, lr: str) -> None:
    flags = ("--model", model, "--lr", lr, "--width", "32", "--words", "30000", "--epochs", "1", "--save", "best.pt")
    out = output_of("word_lm.py", *flags, folder=tmp_path)
    first, second = losses(out, "per batch, loss")
    assert second < first - 0.1
    assert len(losses(out, "valid loss")) == 1
    assert (tmp_path / "best.pt").exists()
