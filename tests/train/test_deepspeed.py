"""DeepSpeed's configurations in terms of vivace: every key has an answer, and what is printed can be run."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Done
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.forked_ranks import on_ranks
from vivace.errors import UserError
from vivace.records.explained import Answer, Explained
from vivace.records.layout import parse_layout
from vivace.train import loop
from vivace.train.deepspeed.reading import known_keys
from vivace.train.deepspeed.rules import RULES
from vivace.train.deepspeed.translate import translate
from vivace.train.settings import TrainSettings, check, with_changes

ZERO3 = {
    "train_batch_size": 64,
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 2,
    "gradient_clipping": 0.5,
    "bf16": {"enabled": True},
    "optimizer": {"type": "AdamW", "params": {"lr": 2e-5, "betas": [0.9, 0.95], "eps": 1e-6, "weight_decay": 0.1}},
    "scheduler": {
        "type": "WarmupCosineLR",
        "params": {"total_num_steps": 300, "warmup_num_steps": 20, "cos_min_ratio": 0.1, "warmup_type": "linear"},
    },
    "zero_optimization": {"stage": 3, "overlap_comm": True, "offload_optimizer": {"device": "cpu"}},
    "activation_checkpointing": {"partition_activations": True},
    "steps_per_print": 20,
}


def settings_of(explained: Explained) -> TrainSettings:
    """What the printed command makes."""
    words = shlex.split(explained.train_command)
    assert words[:4] == ["vivace", "train", "gpt", "--layout"]
    changes = [words[n + 1] for n, word in enumerate(words) if word == "--set"]
    return with_changes(TrainSettings(layout=parse_layout(words[4])), changes)


def answers(explained: Explained) -> dict[str, Answer]:
    return {one.key: one.answer for one in explained.keys}


def test_a_whole_configuration_is_one_training() -> None:
    explained = translate(ZERO3, "zero3.json", None)
    assert explained.ranks == 8  # 64 / (4 x 2)
    assert str(explained.layout) == "fs8,mb4,recompute-full"
    settings = settings_of(explained)
    check(settings, 8)
    assert settings.layout.micro_batches(settings.global_batch) == 2
    optim = settings.optim
    assert (optim.name, optim.lr, optim.betas, optim.eps, optim.weight_decay) == ("adamw", 2e-5, (0.9, 0.95), 1e-6, 0.1)
    assert (optim.clip_norm, optim.decay, optim.warmup_steps, optim.final_share) == (0.5, "cosine", 20, 0.1)
    assert (settings.global_batch, settings.steps, settings.log_every) == (64, 300, 20)
    assert (settings.engine.precision, settings.engine.offload) == ("bf16", True)
    assert explained.run_command == "vivace run --ranks 8 --with fsdp,bf16,checkpointing,clip=0.5 -- python train.py"
    assert set(answers(explained).values()) == {Answer.TRANSLATED, Answer.NOT_NEEDED}
    assert explained.notes == ("8 processes: that is what the batch sizes say",)


@pytest.mark.parametrize(("stage", "layout", "split"), [
    (0, "dp4", "ddp"), (1, "fs4,zero1", "zero1"), (2, "fs4,zero2", "fsdp"), (3, "fs4", "fsdp"),
])  # fmt: skip
def test_the_stages(stage: int, layout: str, split: str) -> None:
    explained = translate({"zero_optimization": {"stage": stage}}, "x", 4)
    assert str(explained.layout) == layout
    assert explained.practices[0] == split


@pytest.mark.parametrize(("config", "key", "answer", "ours"), [
    ({"fp16": {"enabled": True}}, "fp16.enabled", Answer.TRANSLATED, "engine.precision=bf16"),
    ({"fp16": {"enabled": False}}, "fp16.enabled", Answer.NOT_NEEDED, ""),
    ({"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme"}}}, "zero_optimization.offload_param.device",
     Answer.NOT_SUPPORTED, ""),
    ({"zero_optimization": {"stage": 2, "cpu_offload": True}}, "zero_optimization.cpu_offload", Answer.TRANSLATED,
     "engine.offload=True"),
    ({"zero_optimization": {"stage": 3, "mics_shard_size": 2}}, "zero_optimization.mics_shard_size", Answer.TRANSLATED,
     "dp…,fs2 in the layout"),
    ({"gradient_clipping": 0.0}, "gradient_clipping", Answer.TRANSLATED, "optim.clip_norm=None"),
    ({"gradient_clipping": "auto"}, "gradient_clipping", Answer.AUTO, "optim.clip_norm"),
    ({"zero_optimization": {"reduce_bucket_size": "auto"}}, "zero_optimization.reduce_bucket_size", Answer.NOT_NEEDED,
     ""),
    ({"optimizer": {"type": "OneBitAdam"}}, "optimizer.type", Answer.NOT_SUPPORTED, ""),
    ({"optimizer": {"type": "Adam", "params": {"adam_w_mode": False, "weight_decay": 0.1}}}, "optimizer.type",
     Answer.NOT_SUPPORTED, ""),
    ({"optimizer": {"type": "Lamb"}}, "optimizer.type", Answer.TRANSLATED, "--with optimizer=lamb"),
    ({"scheduler": {"type": "OneCycle"}}, "scheduler.type", Answer.NOT_SUPPORTED, ""),
    ({"bf16": {}, "sparse_attention": {"mode": "fixed", "block": 16}}, "sparse_attention", Answer.NOT_SUPPORTED, ""),
    ({"fp16": {}, "communication_data_type": "fp16"}, "communication_data_type", Answer.NOT_SUPPORTED, ""),
    ({"bf16": {}, "zero_optimisation": {"stage": 3}}, "zero_optimisation.stage", Answer.UNKNOWN, ""),
])  # fmt: skip
def test_one_key_and_its_answer(config: dict[str, Any], key: str, answer: Answer, ours: str) -> None:
    (found,) = (one for one in translate(config, "x", 4).keys if one.key == key)
    assert (found.answer, found.ours) == (answer, ours)
    assert found.why or answer is Answer.TRANSLATED


def test_hybrid_sharding_and_tensor_parallelism() -> None:
    mics = {"zero_optimization": {"stage": 3, "mics_shard_size": 2}, "train_micro_batch_size_per_gpu": 1}
    assert str(translate(mics, "x", 8).layout) == "dp4,fs2"
    auto_tp = {"zero_optimization": {"stage": 2}, "tensor_parallel": {"autotp_size": 4}}
    assert str(translate(auto_tp, "x", 8).layout) == "fs2,tp4,zero2"


def test_offload_needs_shards_and_one_rank_has_none() -> None:
    explained = translate(ZERO3, "x", 1)
    assert not settings_of(explained).engine.offload
    assert any("only shards are offloaded" in note for note in explained.notes)


VALUES = st.sampled_from([0, 1, 2, 3, 0.1, 16, True, False, None, "auto", "cpu", "none", "linear", "fp32"])


@given(
    st.dictionaries(st.sampled_from(sorted({*RULES, *known_keys()})), VALUES, min_size=1), st.sampled_from([1, 2, 8])
)
def test_whatever_the_file_says_every_key_is_answered_and_the_command_is_legal(
    values: dict[str, Any], ranks: int
) -> None:
    """Values that DeepSpeed itself would refuse, such as a learning rate of 0, are refused in one sentence."""
    try:
        explained = translate(values, "x", ranks)
        settings = settings_of(explained)
    except UserError:
        return
    assert [one.key for one in explained.keys] == list(values)
    assert settings.layout.gpus == ranks
    assert settings.global_batch % (settings.layout.data * settings.layout.micro_batch) == 0


def test_the_command_prints_what_to_run(tmp_path: Path, vivace_here: Callable[..., Done]) -> None:
    (tmp_path / "ds.json").write_text(json.dumps(ZERO3))
    done = vivace_here("explain", "ds.json")
    assert "18 translated, 2 not needed" in done.out
    assert "vivace train gpt --layout fs8,mb4,recompute-full --set global_batch=64" in done.out
    record = json.loads(vivace_here("explain", "ds.json", "--ranks", "16", "--json").out)
    assert record["layout"]["data"] == 16
    (tmp_path / "no.json").write_text('{"model": 3}')
    assert "is not a DeepSpeed configuration" in vivace_here("explain", "no.json").err


def test_the_translated_training_runs() -> None:
    config = {**ZERO3, "train_batch_size": 8, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2,
              "steps_per_print": 1}  # fmt: skip
    settings = with_changes(settings_of(translate(config, "x", None)), (
        "data.seq_len=8", "sizes.layers=2", "sizes.hidden=16", "sizes.vocab=32", "steps=3", "optim.warmup_steps=1",
    ))  # fmt: skip
    records = on_ranks(2, lambda: loop.train(settings, None).final_loss)
    assert records[0] == records[1]
    assert 2.5 < records[0] < 4.5  # ln 32 is 3.47
