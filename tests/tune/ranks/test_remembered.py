"""A proof is remembered until something changes that it rests on."""

from __future__ import annotations

from pathlib import Path

import pytest

from vivace.records.equality import Equality, EqualityVerdict
from vivace.tune.ranks.remembered import key_of, recall, remember


def equality(verdict: EqualityVerdict) -> Equality:
    return Equality(command=("python", "train.py"), mode="ddp", ranks=2, verdict=verdict, says="")


def test_what_changes_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("import net")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "net.py").write_text("width = 8")
    command = ["python", "train.py"]

    def key() -> str:
        return key_of(command, ("ddp",), 2)

    first = key()
    assert first == key()
    assert first != key_of(command, ("zero1",), 2)
    assert first != key_of(command, ("ddp", "bf16"), 2)
    assert first != key_of(command, ("ddp",), 3)
    assert first != key_of([*command, "--lr", "1"], ("ddp",), 2)
    (tmp_path / "package" / "net.py").write_text("width = 9")
    second = key()
    assert second != first
    (tmp_path / "train.py").write_text("import net  # edited")
    assert key() not in (first, second)


def test_only_what_was_equal_is_taken_from_memory(tmp_path: Path):
    remember(tmp_path, "a", equality(EqualityVerdict.EQUAL))
    remember(tmp_path, "b", equality(EqualityVerdict.NOT_COMPARED))
    assert recall(tmp_path, "a") == equality(EqualityVerdict.EQUAL)
    assert recall(tmp_path, "b") is None
    assert recall(tmp_path, "c") is None
