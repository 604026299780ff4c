"""A rank other than 0 writes apart and reads back what it wrote; what it does not write is as it is."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from conftest import environment
from forked import process

SCRIPT = """
import json, os, sys
from pathlib import Path
import torch
from vivace.scale.files import Shadow
from vivace.scale import files
files._PATIENCE_S = 0.05  # no rank 0 will make the folders
Shadow(Path(sys.argv[1])).install()
seen = {}
with open("new.txt", "w") as file:
    file.write("mine")
seen["new"] = open("new.txt").read()
with open("old.txt", "a") as file:
    file.write(" and mine")
seen["old"] = Path("old.txt").read_text()
torch.save({"x": torch.ones(2)}, "model.pt")
seen["saved"] = torch.load("model.pt")["x"].tolist()
torch.save({"x": torch.zeros(2)}, "model.tmp")
os.replace("model.tmp", "model.pt")
seen["replaced"] = torch.load("model.pt")["x"].tolist()
seen["there"] = [os.path.exists(name) for name in ("new.txt", "model.tmp", "model.pt", "kept.txt", "none.txt")]
os.remove("kept.txt")
seen["removed"] = os.path.exists("kept.txt")
os.makedirs("folder", exist_ok=True)
os.mkdir("folder")
Path("folder/deep").mkdir()
open("folder/deep/file.txt", "w").close()
deep = Path("folder/deep")
seen["folders"] = [os.path.isdir("folder"), deep.is_dir(), os.listdir("folder/deep"), os.path.isdir("no")]
seen["size"] = os.stat("new.txt").st_size
import socket, tempfile
with tempfile.TemporaryDirectory() as place:
    socket.socket(socket.AF_UNIX).bind(place + "/socket")  # from C: the folder must really be there
    Path(place, "deep", "er").mkdir(parents=True)
    seen["temporary"] = sorted(os.listdir(place))
seen["gone"] = not os.path.exists(place)
print(json.dumps(seen))
"""


def test_a_shadow(tmp_path: Path):
    work, shadow = tmp_path / "work", tmp_path / "shadow"
    work.mkdir()
    (work / "old.txt").write_text("theirs")
    (work / "kept.txt").write_text("theirs")
    (tmp_path / "train.py").write_text(SCRIPT)
    done = process.run([sys.executable, str(tmp_path / "train.py"), str(shadow)], work, environment(), 600)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "new": "mine",
        "old": "theirs and mine",
        "saved": [1.0, 1.0],
        "replaced": [0.0, 0.0],
        "there": [True, False, True, True, False],
        "removed": False,
        "size": 4,
        "temporary": ["deep", "socket"],
        "gone": True,
        "folders": [True, True, ["file.txt"], False],
    }
    assert sorted(path.name for path in work.iterdir()) == ["kept.txt", "old.txt"]  # rank 0 makes the folders
    assert (work / "old.txt").read_text() == "theirs"


MAKES_FOLDERS = """
import os, sys
import torch
from vivace.scale.files import keep_files_apart
keep_files_apart(sys.argv[1], makes_folders=True)
os.makedirs("saved/deep")
open("saved/net.pt", "w").close()
print(sorted(os.listdir("saved")), os.path.isdir("saved/deep"))
"""


def test_the_first_rank_of_a_proof_makes_folders_and_takes_them_away(tmp_path: Path):
    """So that a script which makes a folder finds it missing again when it trains for good."""
    (tmp_path / "train.py").write_text(MAKES_FOLDERS)
    work = tmp_path / "work"
    work.mkdir()
    for _ in range(2):
        words = [sys.executable, str(tmp_path / "train.py"), str(tmp_path / "told")]
        done = process.run(words, work, environment(), 600)
        assert done.returncode == 0, done.stderr
        assert done.stdout == "['deep', 'net.pt'] True\n"
        assert list(work.iterdir()) == []
        assert not (tmp_path / "told").exists()
