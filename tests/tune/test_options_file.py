"""What a tune or a search was asked: written for its user only, read back whole, or refused in a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from vivace.errors import UserError
from vivace.tune.finders.asked import FILE, Asked, read_asked, write_asked
from vivace.tune.options_file import read_options, write_options
from vivace.tune.tuning import OPTIONS, Options, resume_options

TUNE = Options(("python", "train.py"), budget_s=90.0, allow=("exact",), timeout_s=5.0, prefix=("srun", "--gpus=1"))
FIND = Asked("batch", ("python", "train.py"), budget_s=float("inf"), flag="-b", values=(8, 16))


@pytest.mark.parametrize("options", [TUNE, FIND])
def test_what_is_written_is_read_back_and_is_for_its_user_only(tmp_path: Path, options: object):
    path = tmp_path / "options.json"
    write_options(path, options)
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_options(path, type(options), UserError("missing")) == options


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "command: Field required"),
        ("[]", "an object"),
        ("{", "Invalid JSON"),
        ('{"what": "batch", "command": "python"}', "command: Input should be a valid array"),
        ('{"what": "batch", "command": ["python"], "budget_s": "long"}', "budget_s: Input should be a valid number"),
    ],
)
def test_a_damaged_file_is_told_in_a_sentence(tmp_path: Path, text: str, message: str):
    (tmp_path / OPTIONS).write_text(text)
    (tmp_path / FILE).write_text(text.replace("{}", '{"what": "batch"}'))
    with pytest.raises(UserError, match=f"{OPTIONS} cannot be read: .*{message}"):
        resume_options(tmp_path)
    with pytest.raises(UserError, match=f"{FILE} cannot be read: .*{message}"):
        read_asked(tmp_path, "batch")


def test_a_newer_vivaces_option_is_not_left_out_in_silence(tmp_path: Path):
    (tmp_path / OPTIONS).write_text('{"command": ["python"], "colour": "red"}')
    with pytest.raises(UserError, match="there is no option colour"):
        resume_options(tmp_path)


def test_a_search_of_the_other_kind_names_its_command(tmp_path: Path):
    write_asked(tmp_path, FIND)
    with pytest.raises(UserError, match="holds a search for the batch") as caught:
        read_asked(tmp_path, "loader")
    assert caught.value.hint == f"vivace find batch --resume {tmp_path}"
