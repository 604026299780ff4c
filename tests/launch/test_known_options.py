"""A command whose options the script rejects is found before the queue; whatever leaves doubt is let through."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from vivace.errors import UserError
from vivace.launch.known_options import check_options

ROOT = Path(__file__).parents[2]
DLOJZ = str(ROOT / "examples" / "dlojz.py")
PLAIN = """import argparse
parser = argparse.ArgumentParser()
parser.add_argument("-b", "--batch-size", type=int)
parser.add_argument("--amp", action=argparse.BooleanOptionalAction)
args = parser.parse_args()
open("trained", "w")
"""


def test_the_slides_command_is_refused_with_the_right_name():
    with pytest.raises(UserError, match="does not know the option --image_size") as error:
        check_options(["python", DLOJZ, "--batch-size", "128", "--image_size", "176"])
    assert "did you mean --image-size?" in str(error.value)
    check_options(["python", DLOJZ, "-b128", "--image-s=176", "--no-pin-memory", "--lr", "-0.1", "--", "--rest"])


@pytest.mark.parametrize(
    "text",
    [
        PLAIN.replace("parse_args", "parse_known_args"),
        PLAIN.replace("import argparse", "import argparse, hydra"),
        PLAIN.replace('"-b"', '"rest", nargs=argparse.REMAINDER)\nparser.add_argument("-b"'),
        PLAIN.replace("parse_args()", "parse_args(my_words())"),
        "from mine import options\nargs = options.parse_args()\n",
        "import sys\nprint(sys.argv)\n",
        "not python",
        # In doubt, and not to be asked: it works before it parses, or hides options.
        PLAIN.replace("args =", "more(parser)\nfor _ in range(9): open('trained', 'w')\nargs ="),
        PLAIN.replace('"-b"', 'hidden, help=argparse.SUPPRESS)\nparser.add_argument("-b"'),
    ],
)
def test_doubt_lets_it_through_and_runs_nothing(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(text)
    check_options([sys.executable, "train.py", "--wrong", "3"])
    check_options(["python", "elsewhere.py", "--wrong"])
    assert not Path("trained").exists()


def test_help_is_asked_where_the_text_does_not_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    loop = "[parser.add_argument(f'--{name}-size') for name in ('image', 'crop')]\nargs ="
    Path("train.py").write_text(PLAIN.replace("args =", loop))
    check_options([sys.executable, "train.py", "--crop-size", "3"])
    with pytest.raises(UserError, match="does not know the option --crop_size"):
        check_options([sys.executable, "train.py", "--crop_size", "3"])
    Path("train.py").write_text(PLAIN.replace("args =", loop).replace("import", "import no_such_module,"))
    check_options([sys.executable, "train.py", "--crop_size", "3"])  # here it cannot be asked
    assert not Path("trained").exists()
