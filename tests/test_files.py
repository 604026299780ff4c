"""Files that a user names: reads end, writes replace regular files only, links stay."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from vivace.errors import UserError
from vivace.files import read_user_text, write_text_atomically, write_user_text
from vivace.records.base import RecordError
from vivace.records.plan import Plan


def test_a_file_without_end_is_not_read_to_its_end():
    with pytest.raises(UserError, match="/dev/zero is larger than 1 MiB"):
        read_user_text("/dev/zero", 2**20)
    with pytest.raises(RecordError, match="/dev/zero is larger than 64 MiB"):
        Plan.load("/dev/zero")


def test_a_file_of_the_largest_size_is_read(tmp_path: Path):
    (tmp_path / "x").write_text("é" * 50)
    assert read_user_text(tmp_path / "x", 100) == "é" * 50
    with pytest.raises(UserError, match="too large"):
        read_user_text(tmp_path / "x", 99)


def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_text_atomically(tmp_path / "pipe", "hello")
    assert os.read(reader, 100) == b"hello"
    os.close(reader)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_a_link_stays_and_its_target_is_replaced(tmp_path: Path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "real").write_text("old")
    (tmp_path / "link").symlink_to("there/real")
    write_text_atomically(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there" / "real").read_text() == "new"


def test_what_cannot_be_written_is_one_sentence(tmp_path: Path):
    with pytest.raises(UserError, match=r"cannot write /dev/full: No space left on device"):
        write_user_text("/dev/full", "x")
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)
    with pytest.raises(UserError, match="No such file or directory"):
        write_user_text(tmp_path / "no" / "x", "x")
    with pytest.raises(UserError, match="Is a directory"):
        write_user_text(tmp_path, "x")
