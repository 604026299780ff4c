"""The arms one after the other, on a clock that is made up: what pays is kept, and the next is tried on top of it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from vivace.practices.engine.change import Change, NotApplicable
from vivace.practices.switching.arms import Arms
from vivace.practices.switching.driver import Driver
from vivace.protocol.switchback import SEEN, ArmState, SeenSwitchback, SwitchbackTest


class Faster(Change):
    """Makes every step ``speedup`` times as fast."""

    switchable = True

    def __init__(self, speedup: float, refuses: str = "") -> None:
        super().__init__(None)
        self.speedup, self.refuses = speedup, refuses

    def switch(self, on: bool, live: Any) -> None:
        if self.refuses:
            raise NotApplicable(self.refuses)
        self.applied("faster")


class Fixed(Faster):
    switchable = False


class NoParts:
    met: tuple[Any, ...] = ()


def seen(folder: Path) -> SeenSwitchback:
    (path,) = folder.glob(SEEN)
    return SeenSwitchback.from_text(path.read_text())


def drive(changes: dict[str, Change], folder: Path, monkeypatch: pytest.MonkeyPatch, **asked: Any) -> SeenSwitchback:
    now = 0.0
    monkeypatch.setattr("vivace.practices.switching.driver.time.perf_counter", lambda: now)
    arms = Arms(changes)
    test = SwitchbackTest(tuple(changes), asked.get("seconds", 1e6))
    driver = Driver(test, arms, NoParts(), folder, asked.get("excluded", lambda *_: False))  # type: ignore[arg-type]

    def train() -> None:
        nonlocal now
        for _ in range(10_000):
            now += 1.0 / math.prod(changes[word].speedup for word in arms.on)  # type: ignore[attr-defined]
            driver.on_cycle()

    with pytest.raises(SystemExit):
        train()
    assert not driver.here()
    return seen(folder)


def test_what_pays_is_kept_and_the_rest_is_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    changes: dict[str, Change] = {
        "good": Faster(1.5), "bad": Faster(0.8), "none": Faster(1.0), "no": Faster(1.0, "not here"),
        "fixed": Fixed(2.0), "better": Faster(1.2),
    }  # fmt: skip
    told = drive(changes, tmp_path, monkeypatch)
    assert {arm.word: arm.state for arm in told.arms} == {
        "good": ArmState.PAYS, "bad": ArmState.NO_GAIN, "none": ArmState.NO_GAIN, "no": ArmState.REFUSED,
        "fixed": ArmState.NOT_SWITCHABLE, "better": ArmState.PAYS,
    }  # fmt: skip
    ratios = {arm.word: arm.ratio for arm in told.arms}
    assert ratios["good"] == pytest.approx(1.5)
    assert ratios["better"] == pytest.approx(1.2)  # on top of what was kept
    assert told.kept == ("good", "better")
    assert told.total is not None
    assert told.total.ratio == pytest.approx(1.8)
    assert told.complete
    assert [word for word, change in changes.items() if change.on] == ["good", "better"]


def test_without_time_the_rest_is_not_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    told = drive({"first": Faster(1.0), "second": Faster(2.0)}, tmp_path, monkeypatch, seconds=20.0)
    assert [arm.state for arm in told.arms] == [ArmState.NO_GAIN, ArmState.NOT_REACHED]


def test_what_excludes_another_is_not_tried_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    changes: dict[str, Change] = {"one": Faster(1.5), "other": Faster(2.0)}
    told = drive(changes, tmp_path, monkeypatch, excluded=lambda *_: True)
    assert told.kept == ("one",)
    assert told.arms[1].text == "one excludes it"


def test_while_an_arm_is_tried_the_record_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """It may end the process."""

    class Crashes(Faster):
        def switch(self, on: bool, live: Any) -> None:
            raise RuntimeError("CUDA error")

    with pytest.raises(RuntimeError):
        drive({"good": Faster(1.5), "crash": Crashes(1.0)}, tmp_path, monkeypatch)
    told = seen(tmp_path)
    assert [(arm.word, arm.state) for arm in told.arms] == [("good", ArmState.PAYS), ("crash", ArmState.TRYING)]
    assert not told.complete
