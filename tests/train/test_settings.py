"""Settings are typed, changed by name, and refused with the nearest name."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.errors import UserError
from vivace.records.layout import parse_layout
from vivace.train.settings import TrainSettings, check, described, with_changes


def test_changes_by_name_and_json_round_trip():
    settings = with_changes(
        TrainSettings(), ["optim.lr=0.5", "data.tokens=train.bin", "optim.clip_norm=null", "steps=7"]
    )
    assert (settings.optim.lr, settings.data.tokens, settings.optim.clip_norm, settings.steps) == (
        0.5,
        "train.bin",
        None,
        7,
    )
    settings = settings.model_copy(update={"layout": parse_layout("dp2,tp2")})
    assert TrainSettings.from_json(settings.to_json()) == settings


@pytest.mark.parametrize(
    ("change", "reason", "hint"),
    [
        ("optim.lrr=1", "no setting 'optim.lrr'", "did you mean lr?"),
        ("optm.lr=1", "no setting 'optm.lr'", "did you mean optim?"),
        ("optim.lr", "sets nothing", "--set"),
        ("optim.lr=fast", "optim.lr: Input should be a valid number", "--set optim.lr"),
        ("kind=plan", "no setting 'kind'", ""),
        ("steps=0", "greater than or equal to 1", ""),
    ],
)
def test_wrong_changes_are_refused(change: str, reason: str, hint: str):
    with pytest.raises(UserError) as caught:
        with_changes(TrainSettings(), [change])
    assert reason in caught.value.message
    assert hint in str(caught.value.hint)


def test_every_setting_can_be_set_to_its_default():
    names = [f"{name}={default}" for name, default, _ in described()]
    assert with_changes(TrainSettings(), names) == TrainSettings()


def test_models_and_layouts_that_do_not_fit_are_refused():
    with pytest.raises(UserError, match="no model called 'resnet5'"):
        check(TrainSettings(model="resnet5"), 1)
    with pytest.raises(UserError, match="it has no pp plan"):
        check(TrainSettings(model="resnet18", layout=parse_layout("pp2")), 2)


@given(st.integers(1, 200), st.integers(0, 50), st.sampled_from(["cosine", "linear", "none"]))
def test_learning_rates_warm_up_and_end_where_they_should(steps: int, warmup: int, decay: str):
    from vivace.train.training import learning_rate

    optim = with_changes(TrainSettings(), [f"optim.warmup_steps={warmup}", f"optim.decay={decay}"]).optim
    rates = [learning_rate(step, optim, steps) for step in range(steps)]
    assert all(0 < rate <= optim.lr * (1 + 1e-12) for rate in rates)
    assert rates[: min(warmup, steps)] == sorted(rates[: min(warmup, steps)])
    if steps > warmup + 1:
        last = optim.lr * (1 if decay == "none" else optim.final_share)
        assert math.isclose(rates[-1], last)
