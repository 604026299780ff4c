"""``vivace plan`` from the outside: words in, tables, JSON or a sentence with a hint out."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from vivace.cli.plan import plan_app
from vivace.errors import UserError
from vivace.records.plan import Plan

DATA = Path(__file__).parent.parent / "plan" / "data"
runner = CliRunner()


def ask(*words: str) -> str:
    result = runner.invoke(plan_app, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_scaling_law_of_own_runs(tmp_path: Path):
    rows = [f"{n},{d},{1.7 + 400 / n**0.34 + 400 / d**0.28}" for n in (1e6, 4e6, 16e6) for d in (2e7, 8e7, 32e7)]
    path = tmp_path / "runs.csv"
    path.write_text("\n".join(["params,tokens,loss", *rows]))
    text = ask("scaling-law", str(path), "--params", "1B", "--tokens", "20B", "--flops", "1e21")
    assert "L(N, D) = 1.7" in text
    assert "best for 1e21 FLOPs" in text
    assert "times the compute of the largest run" in text
    answers = json.loads(ask("scaling-law", str(path), "--flops", "1e20", "--json"))["answers"]
    assert 6 * answers[0]["params"] * answers[0]["tokens"] == pytest.approx(1e20)


def test_a_model_needs_no_sub_command():
    text = ask("llama-3-8b", "--cluster", "jean-zay-h100", "--gpus", "64", "--tokens", "1e11")
    assert "H100" in text
    assert "GPU-hours" in text
    assert " days [" in text
    assert " MWh [" in text
    assert "memory" in text


def test_a_small_job_is_told_in_small_units(tmp_path):
    """It was "0.05 days, 0.00 MWh"."""
    page = tmp_path / "plan.html"
    words = ("resnet18", "--gpu", "h200", "--epochs", "1", "--dataset-size", "5e5", "--price", "0.1")
    text = ask(*words, "--html", str(page))
    for shown in (text, page.read_text()):
        assert re.search(r"\d+(\.\d+)? (s|min) \[", shown)
        assert re.search(r"\d+(\.\d+)? Wh \[", shown)
        assert re.search(r"\d+(\.\d+)? g CO2", shown)
        assert re.search(r"0\.00\d+ EUR", shown)
        assert "0.00 " not in shown
    run = Plan.from_json(ask(*words, "--json")).run  # records keep their base units
    assert run.days.estimate < 0.01
    assert run.energy_mwh.estimate < 1e-3


def test_json_is_a_plan_record(tmp_path):
    path = tmp_path / "plan.json"
    text = ask("gpt2-124m", "--gpu", "h200", "--global-batch", "64", "--compile", "--json", "--save", str(path))
    plan = Plan.from_json(text)
    assert plan == Plan.load(path)
    assert plan.verdict == "fits"
    assert any("50,304" in advice for advice in plan.advice)
    assert plan.step_ms.low < plan.step_ms.estimate < plan.step_ms.high


def test_the_verdict_minds_the_upper_end_of_the_interval():
    plan = Plan.from_json(ask("llama-3-8b", "--cluster", "jean-zay-h100", "--gpus", "64", "--json"))
    beyond = plan.memory_gib.high > plan.available_gib
    assert plan.verdict == ("tight" if beyond else "fits")


def test_a_given_layout_is_kept():
    plan = Plan.from_json(
        ask(
            "gpt-175b",
            "--cluster",
            "dgx-a100",
            "--gpus",
            "64",
            "--tp",
            "8",
            "--pp",
            "8",
            "--global-batch",
            "64",
            "--json",
        )
    )
    assert (plan.layout.tensor, plan.layout.pipeline, plan.layout.data) == (8, 8, 1)


def test_an_image_model():
    plan = Plan.from_json(ask("resnet50", "--gpu", "h200", "--global-batch", "256", "--epochs", "90", "--json"))
    assert plan.parameters == 25_557_032
    assert plan.run.samples == 90 * 1_281_167


@pytest.mark.parametrize(("optimizer", "state_bytes"), [("adamw", 8), ("sgd", 4), ("sgd-plain", 0), ("lion", 4)])
def test_an_image_model_keeps_the_optimizer_that_was_asked_for(optimizer, state_bytes):
    words = ("resnet18", "--gpu", "h200", "--global-batch", "64", "--json")
    plan = Plan.from_json(ask(*words, "--optimizer", optimizer))
    assert plan.optimizer == optimizer
    assert plan.memory_parts_gib["optimizer"] * 2**30 == pytest.approx(state_bytes * plan.parameters)
    assert not any("optimizer" in note for note in plan.assumptions)
    plain = Plan.from_json(ask(*words))
    assert plain.optimizer == "sgd"
    assert "optimizer SGD with momentum, usual for image models" in plain.assumptions
    ratio = plan.step_parts_ms["optimizer"] / plain.step_parts_ms["optimizer"]
    assert ratio == pytest.approx({"adamw": 2, "sgd": 1, "sgd-plain": 0.7, "lion": 1.5}[optimizer])


def test_a_transformer_by_its_sizes():
    plan = Plan.from_json(
        ask(
            "mine",
            "--gpu",
            "a100",
            "--layers",
            "12",
            "--hidden",
            "768",
            "--heads",
            "12",
            "--seq-len",
            "1024",
            "--vocab",
            "50257",
            "--global-batch",
            "8",
            "--json",
        )
    )
    assert plan.parameters == 124_439_808


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["llama-3-8b", "--gpu", "h100", "--gpus", "12", "--tp", "8"], "not a multiple", "--gpus 8"),
        (
            ["gpt2-124m", "--gpu", "h100", "--gpus", "8", "--global-batch", "-4"],
            "global-batch is -4",
            "1 or more",
        ),
        (["gpt2-125m", "--gpu", "h100"], "no model is called", "gpt2-124m"),
        (["gpt2-124m", "--gpu", "h1000"], "no GPU is called", "h100"),
        (["gpt2-124m"], "no cluster and no GPU", "--cluster"),
        (["gpt2-124m", "--cluster", "jean-zay-h10"], "no cluster", "jean-zay-h100"),
        (
            ["gpt2-124m", "--gpu", "v100", "--precision", "bf16", "--global-batch", "8"],
            "does not support bf16",
            "fp16",
        ),
        (["gpt2-124m", "--gpu", "h100", "--optimizer", "magic"], "optimizer", "adamw"),
        (["gpt2-124m", "--gpu", "h100", "--gpus-per-node", "0"], "--gpus-per-node is 0", "--gpus-per-node 1 or more"),
        (
            ["llama-3-8b", "--cluster", "jean-zay-h100", "--gpus", "99999"],
            "99999 GPUs need 25000 nodes, and jean-zay-h100 has 364",
            "at most --gpus 1456",
        ),
        (["gpt2-124m", "--gpu", "h100", "--keep", "0"], "--keep is 0", "--keep 1 or more"),
        (["gpt2-124m", "--gpu", "h100", "--seq-len", "0"], "--seq-len is 0", "--seq-len 1 or more"),
        (["gpt2-124m", "--gpu", "h100", "--seq-len", "-1"], "--seq-len is -1", "--seq-len 1 or more"),
        (["gpt2-124m", "--gpu", "h100", "--price", "-3"], "--price is -3", "--price 0 or more"),
        (["budget", "gpt2-124m", "--gpu", "h100", "--price", "-3"], "--price is -3", "--price 0 or more"),
        (["gpt2-124m", "--gpu", "h100", "--tokens", "1e9", "--pue", "0"], "--pue is 0", "--pue 1 or more"),
        (["gpt2-124m", "--gpu", "h100", "--tokens", "1e9", "--pue", "nan"], "--pue is nan", "--pue 1 or more"),
        (["resnet50", "--gpu", "h100", "--tp", "2"], "--tp is for transformers", "leave --tp out"),
        (["resnet50", "--gpu", "h100", "--zero", "1"], "--zero is for transformers", "leave --zero out"),
        (["resnet50", "--gpu", "h100", "--scaling"], "--scaling is for transformers", "leave it out"),
        (["resnet50", "--gpu", "h100", "--tokens", "1e9"], "--tokens is for transformers", "--epochs"),
        (["gpt2-124m", "--gpu", "h100", "--epochs", "3"], "need --dataset-size", "--tokens"),
        (
            ["gpt2-124m", "--gpu", "h100", "--epochs", "3", "--dataset-size", "9", "--tokens", "1e9"],
            "--tokens and --epochs",
            "one of them",
        ),
        (["resnet50", "--gpu", "h100", "--epochs", "0"], "--epochs is 0", "--epochs 1"),
        (
            ["resnet50", "--gpu", "h100", "--epochs", "1", "--dataset-size", "-1"],
            "--dataset-size is -1",
            "--dataset-size 1",
        ),
        (["budget", "gpt2-124m", "--gpu", "h100", "--days", "0"], "--days is 0", "--days 1"),
        (["budget", "gpt2-124m", "--gpu", "h100", "--cost", "100"], "--cost needs the price", "--price"),
        (["gpt2-124m", "--gpu", "h100", "--tokens", ""], "--tokens ''", "1e12"),
        (["gpt2-124m", "--gpu", "h100", "--tokens", "1e400"], "--tokens '1e400'", "1e12"),
        (["m", "--gpu", "h100", "--layers", "12", "--hidden", "768", "--heads", "7"], "--heads 7", "--heads 8"),
        (
            ["m", "--gpu", "h100", "--layers", "2", "--hidden", "768", "--heads", "12", "--kv-heads", "5"],
            "--kv-heads 5",
            "--kv-heads 6",
        ),
        (["gpt2-124m", "--gpu", "h100", "--image-size", "224"], "--image-size is for image models", "--seq-len"),
        (["resnet50", "--gpu", "h100", "--image-size", "0"], "--image-size is 0", "--image-size 1 or more"),
        (["resnet50", "--gpu", "h100", "--seq-len", "8"], "--seq-len is for transformers", "--image-size"),
    ],
)
def test_mistakes_get_a_reason_and_a_hint(words, message, hint):
    with pytest.raises(UserError) as caught:
        runner.invoke(plan_app, words, catch_exceptions=False)
    assert message in caught.value.message
    assert hint in caught.value.hint


@pytest.mark.parametrize("option", ["--save", "--html"])
def test_a_file_that_cannot_be_written_is_one_sentence(option: str):
    with pytest.raises(UserError, match="cannot write /nonexist/x: No such file or directory"):
        runner.invoke(plan_app, ["gpt2-124m", "--gpu", "h100", option, "/nonexist/x"], catch_exceptions=False)


def test_as_many_gpus_as_the_cluster_has_are_planned_and_the_batch_is_called_what_it_is():
    full = Plan.from_json(ask("llama-3-8b", "--cluster", "jean-zay-h100", "--gpus", "1456", "--json"))
    assert full.gpus == 1456
    large = "global batch 1456 sequences (11.9M tokens), one for each GPU: 6.0 times what is usual for this size"
    assert large in full.assumptions
    some = Plan.from_json(ask("llama-3-8b", "--cluster", "jean-zay-h100", "--gpus", "64", "--json"))
    assert "global batch 256 sequences (2.1M tokens), usual for this size" in some.assumptions


def test_a_cluster_of_unknown_size_takes_any_number():
    assert Plan.from_json(ask("gpt2-124m", "--cluster", "dgx-h100", "--gpus", "4096", "--json")).gpus == 4096


@pytest.mark.parametrize(
    ("model", "amount"), [("gpt2-124m", ("--tokens", "1e12")), ("resnet50", ("--epochs", "90"))], ids=lambda x: str(x)
)
def test_the_last_line_says_how_to_ask_for_days_energy_and_cost(model: str, amount: tuple[str, str]):
    words = (model, "--gpu", "h100", "--global-batch", "64")
    last = f"for time, energy and cost add: {' '.join(amount)} --price 2.5 (per GPU-hour)"
    assert ask(*words).splitlines()[-1] == last
    assert "energy and cost" not in ask(*words, *amount, "--price", "2.5")


def test_validate_prints_json_and_writes_rows(tmp_path):
    rows = tmp_path / "rows.csv"
    grades = json.loads(ask("validate", str(DATA / "excerpt_language.csv"), "--json", "--rows", str(rows)))
    assert grades[0]["rows_used"] == 6
    assert {"step_time_mape", "memory_mape", "rank_correlation", "worst_row", "skipped", "oom_right"} <= set(grades[0])
    assert len(rows.read_text().splitlines()) == 10


def test_validate_as_a_table():
    assert "unseen" in ask("validate", str(DATA / "excerpt_language.csv"))


def test_budget():
    data = json.loads(
        ask("budget", "llama-3.2-1b", "--cluster", "jean-zay-h100", "--gpus", "16", "--days", "30", "--json")
    )
    assert data["cheapest"]["gpu_hours"]["estimate"] <= data["shortest"]["gpu_hours"]["estimate"]
    assert data["largest_sizes"]["layers"] > 0


def test_a_budget_that_is_too_small_is_answered():
    text = ask("budget", "gpt-175b", "--gpu", "a100", "--gpus", "416", "--days", "30")
    assert "The limits are too small for all tokens: they pay for" in text
    assert "shortest (beyond the limits): 416 GPUs" in text
    assert "largest compute-optimal model" in text


def test_models_are_listed():
    assert {"llama-3-8b", "resnet50"} <= set(ask("models").split())


def test_a_cluster_from_a_file(tmp_path, monkeypatch):
    monkeypatch.setenv("VIVACE_CATALOGUE", "")
    path = tmp_path / "mine.toml"
    path.write_text(
        '[cluster.mine]\nname = "Mine"\ngpu = "h200-sxm"\ngpus_per_node = 4\nsources = ["me"]\n'
        "inter_node_gbits_per_s_per_gpu = 200\n"
    )
    plan = Plan.from_json(ask("llama-3-8b", "--cluster", str(path), "--gpus", "8", "--json"))
    assert (plan.cluster, plan.gpus_per_node, plan.nodes) == ("mine", 4, 2)
    (tmp_path / "bad.toml").write_text("x = 1")
    with pytest.raises(UserError, match="NAME"):
        runner.invoke(plan_app, ["gpt2-124m", "--cluster", str(tmp_path / "bad.toml")], catch_exceptions=False)


def test_a_measurement_moves_the_plan(tmp_path):
    words = ("gpt2-124m", "--gpu", "h200", "--global-batch", "64", "--micro-batch", "64", "--json")
    plain = Plan.from_json(ask(*words))
    path = tmp_path / "measurement.json"
    path.write_text(json.dumps({"step_ms": {"median": 2 * plain.step_ms.estimate}, "batch_size": 64}))
    moved = Plan.from_json(ask(*words, "--measurement", str(path)))
    assert moved.step_ms.estimate == pytest.approx(2 * plain.step_ms.estimate, rel=0.05)
    assert moved.calibrated_with == str(path)


def test_scaling_prints_both_curves():
    text = ask("llama-3.2-1b", "--cluster", "dgx-h100", "--gpus", "32", "--scaling")
    assert "strong scaling" in text
    assert "weak scaling" in text
