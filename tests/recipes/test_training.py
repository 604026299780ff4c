"""The loop of a recipe: what it computes, and that nothing around it changes what it computes."""

from __future__ import annotations

import csv
import json
import os
import signal
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from recipes.small import IMAGES, MODELS, TOKENS, losses, recipe_of, trained

from benchmarks.forked_ranks import on_ranks
from vivace import distributed
from vivace.errors import ExitCode, UserError
from vivace.race.metrics.reader import MetricReader
from vivace.race.targets import Wanted
from vivace.recipes import training as parts
from vivace.recipes.loop import train
from vivace.recipes.on_layouts import layout_settings
from vivace.recipes.reading import as_toml
from vivace.recipes.training import Training
from vivace.records.layout import parse_layout
from vivace.train import loop as engine


def as_floats(found: dict[int, str]) -> list[float]:
    return [float(value) for _, value in sorted(found.items())]


def test_it_computes_what_a_bare_loop_computes(tmp_path: Path):
    """Order, normalisation, rate and step, written out by hand."""
    changes = ("schedule.name=cosine", "schedule.warmup=2ba", "optim.momentum=0.9", "optim.weight_decay=0.1")
    trained(tmp_path, IMAGES, *changes)
    recipe = recipe_of(tmp_path, IMAGES, *changes)
    source = parts.open_source(recipe, train=True)
    torch.manual_seed(0)
    model = parts.build_model(recipe, 4, torch.device("cpu"))
    vectors = [each for each in model.parameters() if each.ndim == 1]
    matrices = [each for each in model.parameters() if each.ndim > 1]
    optimizer = torch.optim.SGD([{"params": matrices, "weight_decay": 0.1}, {"params": vectors}], lr=0.05, momentum=0.9)
    mean, std = torch.tensor(recipe.data.mean).view(3, 1, 1), torch.tensor(recipe.data.std).view(3, 1, 1)
    expected = []
    for step in range(8):
        epoch, batch = divmod(step, 4)
        rows = np.random.default_rng([0, epoch]).permutation(64)[batch * 16 : batch * 16 + 16]
        found = source[[parts_key(int(row)) for row in rows]]
        images = (found.inputs.permute(0, 3, 1, 2) / 255 - mean) / std
        rate = (step + 1) / 2 if step < 2 else (1 + np.cos(np.pi * (step - 2) / 5)) / 2
        for group in optimizer.param_groups:
            group["lr"] = 0.05 * rate
        loss = F.cross_entropy(model(images), found.targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        expected.append(loss.item())
    assert as_floats(losses(tmp_path)) == pytest.approx(expected, rel=1e-5)


def parts_key(index: int):
    from vivace.recipes.sources import Key

    return Key(index, 0, 8, 8)


def test_a_race_reads_what_is_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    trained(tmp_path, IMAGES)
    reader = MetricReader(Wanted.parse("val_accuracy"))
    read = [found.value for line in capfd.readouterr().out.splitlines() if (found := reader.read_line(line, 0.0))]
    rows = list(csv.DictReader((tmp_path / "validation.csv").open()))
    assert read == pytest.approx([float(row["val_accuracy"]) for row in rows], abs=1e-4)


def test_it_learns_and_says_so_everywhere(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    record = trained(tmp_path, IMAGES, "duration=30ep", "optim.lr=0.2", "log.every=20ba", "validation.every=10ep")
    assert record.val_accuracy is not None
    assert record.val_accuracy > 0.9
    assert (record.steps, record.samples, record.parameters) == (120, 1920, 132)
    events = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [event["step"] for event in events if event["event"] == "validation"] == [40, 80, 120]
    assert [event["step"] for event in events if event["event"] == "train"] == [20, 40, 60, 80, 100, 120]
    rows = list(csv.DictReader((tmp_path / "validation.csv").open()))
    assert float(rows[-1]["val_accuracy"]) == record.val_accuracy
    said = capfd.readouterr().out
    assert f"epoch 30.00  val_loss {record.val_loss:.4f}  val_accuracy {record.val_accuracy:.4f}" in said
    assert " left\n" in said
    assert "samples/s" in said


def test_the_layout_engine_and_the_loop_train_alike(tmp_path: Path):
    """Two loops that share no line: the same first weights, order and steps."""
    np.random.default_rng(0).integers(0, 32, 400).astype(np.uint16).tofile(tmp_path / "tokens.bin")
    changes = (
        f"data.train={tmp_path / 'tokens.bin'}",
        "optim.clip_norm=1.0",
        "optim.weight_decay=0.1",
        "optim.betas=[0.9, 0.95]",
    )
    trained(tmp_path / "loop", TOKENS, *changes)
    settings = layout_settings(recipe_of(tmp_path, TOKENS, *changes), "fs2")
    settings = settings.model_copy(update={"layout": parse_layout("fs2,mb4"), "log_every": 1})
    (tmp_path / "engine").mkdir()

    def work() -> None:
        engine.train(settings, tmp_path / "engine" if distributed.world().is_master else None)

    on_ranks(2, work)
    assert as_floats(losses(tmp_path / "loop")) == pytest.approx(as_floats(losses(tmp_path / "engine")), rel=1e-5)


def test_two_replicas_train_as_one_process(tmp_path: Path):
    changes = ("optim.clip_norm=0.5", "duration=1ep", "optim.ema=0.9")
    one = trained(tmp_path / "one", IMAGES, *changes)
    recipe = recipe_of(tmp_path / "two", IMAGES, *changes)

    def work() -> None:
        world = distributed.world()
        train(recipe, tmp_path / "two" if world.is_master else None, world)

    on_ranks(2, work)
    assert as_floats(losses(tmp_path / "two")) == pytest.approx(as_floats(losses(tmp_path / "one")), rel=1e-5)
    two = json.loads((tmp_path / "two" / "trained.json").read_text())
    assert two["processes"] == 2
    assert two["val_loss"] == pytest.approx(one.val_loss, rel=1e-5)  # each of 64 samples once, not padded


def test_accumulation_is_the_same_batch_in_pieces(tmp_path: Path):
    whole = trained(tmp_path / "whole", IMAGES)
    pieces = trained(tmp_path / "pieces", IMAGES, "accumulate=4")
    assert as_floats(losses(tmp_path / "pieces")) == pytest.approx(as_floats(losses(tmp_path / "whole")), rel=1e-5)
    assert pieces.val_loss == pytest.approx(whole.val_loss, rel=1e-5)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw", "lamb", "muon", "lion", "schedulefree"])
def test_a_training_that_was_stopped_goes_on_bit_for_bit(
    tmp_path: Path, optimizer: str, monkeypatch: pytest.MonkeyPatch
):
    """Dropout, augmentation, averaged weights, the middle of an epoch."""
    changes = (
        f"model.name={MODELS}:dropping", f"optim.name={optimizer}", "optim.lr=0.01", "augment.crop=shift",
        "augment.shift=2", "augment.flip=random", "augment.mixup=0.2", "checkpoints.every=100ba", "duration=10ba",
        *(["optim.ema=0.9"] if optimizer != "schedulefree" else []),
    )  # fmt: skip
    whole = trained(tmp_path / "whole", IMAGES, *changes)
    folder = f"checkpoints.folder={tmp_path / 'saved'}"
    take = Training.take_step

    def struck(training: Training, batch: object):
        if training.step == 5:
            os.kill(os.getpid(), signal.SIGTERM)
        return take(training, batch)

    monkeypatch.setattr(Training, "take_step", struck)
    stopped = trained(tmp_path / "stopped", IMAGES, folder, *changes)
    assert stopped.steps == 6
    torch.manual_seed(99)
    monkeypatch.setattr(Training, "take_step", take)
    again = trained(tmp_path / "stopped", IMAGES, folder, *changes)
    assert losses(tmp_path / "stopped") == losses(tmp_path / "whole")
    assert again.val_loss == whole.val_loss


def test_other_data_than_those_of_the_checkpoint_are_refused(tmp_path: Path):
    folder = f"checkpoints.folder={tmp_path / 'saved'}"
    trained(tmp_path / "a", TOKENS, folder, "duration=2ba")
    with pytest.raises(UserError, match="was saved with batch = 8"):
        trained(tmp_path / "b", TOKENS, folder, "batch=4")


# -- faults -----------------------------------------------------------------------------------------------------------


def with_bad_batches(monkeypatch: pytest.MonkeyPatch, steps: tuple[int, ...], factor: float) -> None:
    make = parts._loss

    def bad(recipe):
        good, count = make(recipe), iter(range(10**6))
        return lambda outputs, targets: good(outputs, targets) * (factor if next(count) in steps else 1.0)

    monkeypatch.setattr(parts, "_loss", bad)


def test_a_loss_that_is_no_number_ends_the_training_with_its_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with_bad_batches(monkeypatch, (2,), float("nan"))
    with pytest.raises(UserError, match="not finite in step 3: the training ends") as caught:
        trained(tmp_path, IMAGES, "log.every=4ba")
    assert caught.value.exit_code is ExitCode.NEGATIVE


def test_no_checkpoint_is_written_after_such_a_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with_bad_batches(monkeypatch, (5,), float("nan"))
    folder = tmp_path / "saved"
    with pytest.raises(UserError, match="not finite in step 6"):
        trained(tmp_path, IMAGES, "log.every=100ba", f"checkpoints.folder={folder}", "checkpoints.every=4ba")
    assert [path.name for path in folder.glob("step-*")] == ["step-00000004"]


def test_a_step_with_such_a_loss_can_be_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with_bad_batches(monkeypatch, (2,), float("nan"))
    record = trained(tmp_path, IMAGES, "faults.nan=skip")
    assert record.skipped_steps == 1
    assert np.isfinite(record.val_loss)
    found = as_floats(losses(tmp_path))
    assert [step for step, loss in enumerate(found) if not np.isfinite(loss)] == [2]


@pytest.mark.parametrize(("action", "skipped"), [("warn", 0), ("skip", 1), ("stop", None)])
def test_a_loss_that_jumps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], action: str, skipped: int | None
):
    with_bad_batches(monkeypatch, (12,), 10.0)
    changes = ("duration=4ep", f"faults.spike={action}")
    if skipped is None:
        with pytest.raises(UserError, match=r"jumped to .* in step 13"):
            trained(tmp_path, IMAGES, *changes)
        return
    record = trained(tmp_path, IMAGES, *changes)
    assert (record.spikes, record.skipped_steps) == (1, skipped)
    assert "in step 13" in capfd.readouterr().err


# -- other models, data and losses ------------------------------------------------------------------------------------


def test_model_data_and_loss_of_the_users_own(tmp_path: Path):
    own = (
        "\n".join(IMAGES.splitlines()[:0])
        + f"""
        batch = 8
        duration = "40ep"
        loss = "{MODELS}:distance"
        [model]
        name = "{MODELS}:line"
        [data]
        kind = "own"
        train = "{MODELS}:points"
        val = "{MODELS}:points"
        workers = 0
        [optim]
        lr = 0.05
    """
    )
    record = trained(tmp_path, own)
    assert record.val_loss is not None
    assert record.val_loss < 0.1
    assert record.val_accuracy is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("model.name=resnet", "model.name: there is no model 'resnet'"),
        ("model.name=torchvision:resnet18", "torchvision:resnet18 needs torchvision"),
        ("model.name=timm:resnet18", "timm:resnet18 needs timm"),
        ("model.name=hf:gpt2", "hf:gpt2 needs transformers"),
        (f"model.name={MODELS}:no_model", "gave a int, not a torch.nn.Module"),
        (f"model.name={MODELS}:absent", "has no function absent"),
        ("model.name=absent.py:model", "there is no file absent.py"),
        ("loss=huber", "loss: there is no 'huber'"),
        ("data.train=/absent", "no folder /absent"),
        ("log.tensorboard=on", "log.tensorboard: it is not installed"),
    ],
)  # fmt: skip
def test_what_cannot_be_had_is_said_with_a_hint(tmp_path: Path, change: str, message: str):
    with pytest.raises(UserError) as caught:
        trained(tmp_path, IMAGES, change)
    assert message in caught.value.message
    assert caught.value.hint or "gave a" in message


def test_models_of_libraries_get_what_they_take(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """With stand-ins for torchvision, timm and transformers, which are not installed here."""
    asked: list[object] = []

    def maker(*args: object, **kwargs: object) -> torch.nn.Module:
        asked.append((args, kwargs))
        return torch.nn.Linear(1, 1)

    stands = {
        "torchvision": {"models": SimpleNamespace(get_model=maker)},
        "timm": {"create_model": maker},
        "transformers": {
            "AutoConfig": SimpleNamespace(from_pretrained=lambda name, trust_remote_code: f"configuration of {name}"),
            "AutoModelForCausalLM": SimpleNamespace(from_config=maker),
        },
    }
    for name, contents in stands.items():
        module = ModuleType(name)
        vars(module).update(contents)
        monkeypatch.setitem(sys.modules, name, module)
    for name in ("torchvision:vit_b_16", "timm:convnext_tiny", "hf:gpt2"):
        recipe = recipe_of(tmp_path, IMAGES, f"model.name={name}", "model.args={dropout = 0.1}")
        assert isinstance(parts.build_model(recipe, 7, torch.device("cpu")), torch.nn.Linear)
    assert asked == [
        (("vit_b_16",), {"weights": None, "num_classes": 7, "dropout": 0.1}),
        (("convnext_tiny",), {"num_classes": 7, "dropout": 0.1}),
        (("configuration of gpt2",), {"dropout": 0.1}),
    ]


@pytest.mark.parametrize("model", ["small", "own_class"])
def test_a_compiled_model_is_compiled_and_computes_the_same(
    tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch
):
    """With dynamo's graphs run as they are: inductor would take most of the time."""
    changes, graphs = (f"model.name={MODELS}:{model}", "duration=3ba"), []
    trained(tmp_path / "plain", IMAGES, *changes)

    def backend(graph: torch.fx.GraphModule, _inputs: object):
        graphs.append(graph)
        return graph.forward

    compile_ = torch.compile
    monkeypatch.setattr(torch, "compile", lambda function, mode: compile_(function, backend=backend))
    trained(tmp_path / "compiled", IMAGES, *changes, "speed.compile=true")
    torch._dynamo.reset()
    assert any("conv2d" in graph.code for graph in graphs)
    assert as_floats(losses(tmp_path / "compiled")) == pytest.approx(as_floats(losses(tmp_path / "plain")), rel=1e-5)


def test_a_time_ends_a_training(tmp_path: Path):
    record = trained(tmp_path, IMAGES, "duration=0.01s", "log.every=2ba")
    assert record.steps % 2 == 0
    assert record.seconds >= 0.01
    assert record.val_loss is not None


def test_phases_change_size_and_batch(tmp_path: Path):
    phases = "phases=[{start='0ep', image_size=8, batch=32, lr=2}, {start='1ep'}]"
    record = trained(tmp_path, IMAGES, phases, "data.image_size=12")
    assert (record.steps, record.samples) == (2 + 4, 128)
    rows = list(csv.DictReader((tmp_path / "metrics.csv").open()))
    assert [float(row["lr"]) for row in rows] == [0.1] * 2 + [0.05] * 4


def test_a_recipe_that_needs_more_than_the_layout_engine_has(tmp_path: Path):
    recipe = recipe_of(tmp_path, TOKENS, "optim.name=lamb")
    with pytest.raises(UserError, match=r"it has no optim\.name = lamb"):
        layout_settings(recipe, "tp2")
    with pytest.raises(UserError, match="duration: the layout engine counts steps"):
        layout_settings(recipe_of(tmp_path, TOKENS, "duration=2ep"), "tp2")
    assert "optim.name" in as_toml(recipe)
