"""The flag's value in the user's command: however it is written, and only in the script's own arguments."""

from __future__ import annotations

import pytest

from vivace.errors import UserError
from vivace.tune.finders.flags import check_flag, value_of, with_value


@pytest.mark.parametrize(
    ("command", "flag", "value", "changed"),
    [
        ("python t.py -b 32 -v", "-b", 32, "python t.py -b 64 -v"),
        ("python t.py -b32", "-b", 32, "python t.py -b64"),
        ("python t.py --batch-size=32", "--batch-size", 32, "python t.py --batch-size=64"),
        ("python t.py --batch-size 32", "--batch-size=", 32, "python t.py --batch-size 64"),
        ("python t.py", "-b", None, "python t.py -b 64"),
        ("python t.py", "--bs=", None, "python t.py --bs=64"),
        ("python t.py data.batch=32 lr=1", "data.batch", 32, "python t.py data.batch=64 lr=1"),
        ("python t.py +data.batch=32", "data.batch=", 32, "python t.py +data.batch=64"),
        ("python t.py", "data.batch=", None, "python t.py data.batch=64"),
        ("python t.py --batch-size-valid 8", "--batch-size", None, "python t.py --batch-size-valid 8 --batch-size 64"),
        ("python -b t.py -b 32", "-b", 32, "python -b t.py -b 64"),
        ("torchrun -b 9 t.py -b 32", "-b", 32, "torchrun -b 9 t.py -b 64"),
        ("python -m torch.distributed.run -m my.t -b 32", "-b", 32, "python -m torch.distributed.run -m my.t -b 64"),
        ("python t.py -b 8 -b 32", "-b", 8, "python t.py -b 64 -b 64"),
        ("python t.py -b auto", "-b", None, "python t.py -b 64"),
        ("env A=1 BATCH=32 python t.py", "BATCH=", 32, "env A=1 BATCH=64 python t.py"),
        ("/usr/bin/env BATCH=32 torchrun t.py", "BATCH", 32, "/usr/bin/env BATCH=64 torchrun t.py"),
        ("env A=1 python BATCH=8 t.py", "BATCH=", None, "env A=1 python BATCH=8 t.py BATCH=64"),
    ],
)
def test_the_value_is_read_and_replaced(command: str, flag: str, value: int | None, changed: str):
    assert value_of(command.split(), flag) == value
    assert " ".join(with_value(command.split(), flag, 64)) == changed


@pytest.mark.parametrize("flag", ["", "-", "--", "8", "a b", "=", "-b=64"])
def test_what_is_no_flag_is_refused(flag: str):
    with pytest.raises(UserError):
        check_flag(flag)


@pytest.mark.parametrize("flag", ["-b", "--batch-size", "--batch_size=", "data.batch", "+data.batch=", "-bs"])
def test_flags_are_taken_as_people_write_them(flag: str):
    check_flag(flag)
