"""From a plan to the words of the training that carries it out, and back to the same settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from records.test_plan import plan

from vivace.cli.train_layout import _layout
from vivace.errors import UserError
from vivace.records.layout import Layout
from vivace.records.plan import Plan
from vivace.records.transformer import TransformerSizes
from vivace.train.planned import settings_of, train_words
from vivace.train.settings import TrainSettings, with_changes

SIZES = TransformerSizes(layers=4, hidden=64, heads=4, vocab=100, gated=True)


def planned(**changes) -> Plan:
    fields = {"sizes": SIZES, "seq_len": 32, "compute": "bf16", "layout": Layout(data=4, tensor=2, zero=1)}
    return plan(**{**fields, **changes})


def test_the_words_say_all_that_was_planned():
    settings = settings_of(planned())
    assert (settings.layout, settings.global_batch, settings.data.seq_len) == (Layout(data=4, tensor=2, zero=1), 8, 32)
    assert (settings.sizes, settings.engine.precision, settings.optim.name) == (SIZES, "bf16", "adamw")
    words = train_words(settings)
    assert words[:5] == ("vivace", "train", "gpt", "--layout", "fs4,tp2,zero1,nosp,mb1")
    again = with_changes(TrainSettings(model=words[2]), words[6::2])
    assert again.model_copy(update={"layout": _layout(words[4], 8, again.global_batch)}) == settings


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"compute": "fp8"}, "in fp32 or bf16"),
        ({"optimizer": "lamb"}, "adamw and sgd"),
        ({"sizes": None}, "an older vivace wrote it"),
        ({"sizes": None, "seq_len": None, "model": "vit-b-16"}, "has no vit-b-16"),
        ({"sizes": SIZES.model_copy(update={"positions": "alibi"})}, "no ALiBi"),
        ({"global_batch": 6}, "not a multiple"),
    ],
)
def test_what_the_trainer_cannot_do_is_refused(changes: dict, reason: str):
    with pytest.raises(UserError, match=reason):
        settings_of(planned(**changes))


def test_states_of_one_rank_are_not_sharded_and_a_v_has_two_stages():
    layout = Layout(tensor=2, pipeline=4, zero=1, schedule="zbv")
    found = settings_of(planned(layout=layout, sizes=SIZES.model_copy(update={"layers": 8})))
    assert found.layout == replace(layout, zero=0, virtual_stages=2)


def test_submit_without_a_command_trains_the_plan(vivace_here: Callable, tmp_path: Path):
    words = "plan llama-3-8b --cluster jean-zay-h100 --gpus 64 --precision bf16 --save plan.json"
    assert vivace_here(*words.split()).code == 0
    script = vivace_here("submit", "--plan", "plan.json", "--dry-run").out
    assert "vivace train gpt --layout " in script
    assert "sizes.layers=32" in script
    done = vivace_here("submit", "--plan", "plan.json", "--gpus", "8", "--dry-run")
    assert (done.code, "the plan's layout has 64 processes" in done.err) == (2, True)
