"""Run folders never overwrite, and their names come from the command."""

from __future__ import annotations

from pathlib import Path

import pytest

from vivace.errors import UserError
from vivace.measure.folder import name_of_command, new_run_folder


def test_each_run_gets_a_new_folder(tmp_path: Path):
    names = [new_run_folder(tmp_path / "runs", "train").name for _ in range(3)]
    assert names == ["train-001", "train-002", "train-003"]


def test_a_name_cannot_leave_the_folder(tmp_path: Path):
    folder = new_run_folder(tmp_path, "../../evil name;rm -rf")
    assert folder.parent == tmp_path
    assert folder.name == "evil-name-rm--rf-001"


def test_an_unwritable_place_is_the_users_to_mend(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot make a run folder") as error:
        new_run_folder(tmp_path / "file", "x")
    assert "--output" in (error.value.hint or "")


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["python", "src/train.py", "-b", "8"], "train"),
        (["torchrun", "--nproc-per-node", "2", "ddp.py"], "ddp"),
        (["python", "-m", "my.pkg.trainer"], "trainer"),
        (["bash", "jobs/go.sh"], "go"),
        (["accelerate", "launch"], "accelerate"),
        (["python", "训练 école.py"], "训练-école"),
        (["python", "e\N{COMBINING ACUTE ACCENT}cole.py"], "école"),
        (["python", "a\\b\udcff..py"], "a-b"),
        (["python", ".hidden.py"], "hidden"),
        (["bash", "-c", "WANDB_API_KEY=secret python src/train.py"], "train"),
        (["bash", "-lc", "export KEY=secret.py; cd 'my code' && python -m pkg.trainer"], "trainer"),
        (["sh", "-c", "KEY=secret"], "sh"),
        (["env", "KEY=secret.py", "python", "train.py"], "train"),
    ],
)
def test_a_run_is_named_after_its_script(command: list[str], name: str):
    assert name_of_command(command) == name


@pytest.mark.parametrize("name", ["训" * 80 + "/x", "a" * 252, "..", "／", "‥/..", "/etc/é"])
def test_any_name_gives_a_folder_in_its_place(tmp_path: Path, name: str):
    folder = new_run_folder(tmp_path, name)
    assert folder.is_dir()
    assert folder.parent == tmp_path
    assert not folder.name.startswith(".")
