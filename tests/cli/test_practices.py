"""``vivace practices`` as a user runs it: a table of all, a page for one, JSON, and a hint for a wrong name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from vivace.practices.engine.gains import GAINS, MeasuredGain, measured_gains
from vivace.practices.engine.registry import all_practices, names


def test_the_table_names_every_practice_with_its_risk(vivace_here: Callable):
    done = vivace_here("practices", COLUMNS="120")
    assert done.code == 0, done.err
    rows = {line.split()[0]: line for line in done.out.splitlines() if line.strip()}
    assert set(names()) <= set(rows)
    assert rows["channels_last"].split()[-3:] == ["kernels", "rounding", "yes"]
    assert rows["no_syncs"].split()[-4:] == ["structure", "exact", "by", "hand"]


def test_a_page_says_why_how_and_what_it_gained(vivace_here: Callable):
    done = vivace_here("practices", "compile", COLUMNS="120")
    assert done.code == 0, done.err
    for heading in ("Why", "By hand", "From outside", "Measured gains", "Source"):
        assert heading in done.out
    assert "vivace run --with compile -- python train.py" in done.out
    assert "compile=default | reduce-overhead | max-autotune | regional" in done.out
    assert "model.compile()" in done.out


def test_a_page_of_one_that_only_the_user_can_change(vivace_here: Callable):
    done = vivace_here("practices", "no-grad-validation")  # dashes are as good as underscores
    assert done.code == 0, done.err
    assert "not possible" in done.out
    assert "with torch.no_grad():" in done.out


def test_a_practice_that_nobody_measured_says_so(vivace_here: Callable):
    unmeasured = [name for name in names() if not measured_gains(name)]
    if not unmeasured:
        pytest.skip("every practice has been measured")
    assert "not measured yet" in vivace_here("practices", unmeasured[0]).out


def test_json_of_all_and_of_one(vivace_here: Callable):
    everything = vivace_here("practices", "--json").record
    assert [one["name"] for one in everything] == list(names())
    one = vivace_here("practices", "workers", "--json").record
    assert one in everything
    assert {key: one[key] for key in ("family", "risk", "applies", "argument")} == {
        "family": "loader", "risk": "exact", "applies": True, "argument": "N",
    }  # fmt: skip
    assert {one["name"]: one["applies"] for one in everything} == {
        p.name: p.change is not None for p in all_practices()
    }


def test_a_wrong_name_gets_a_hint_and_no_traceback(vivace_here: Callable):
    done = vivace_here("practices", "chanels_last")
    assert done.code == 2
    assert "there is no practice named 'chanels_last'" in done.err
    assert "did you mean channels_last?" in done.err
    assert "Traceback" not in done.err


def test_gains_are_read_from_the_table(tmp_path: Path):
    table = tmp_path / "gains.csv"
    table.write_text(
        "practice,setting,script,device,ratio,low,high,source_file\n"
        "bf16,bf16,dlojz.py,NVIDIA H200,2.5,2.4,2.6,benchmarks/results/x.csv\n"
        "tf32,tf32,dlojz.py,NVIDIA H200,1.5,1.4,1.6,benchmarks/results/x.csv\n"
    )
    assert measured_gains("bf16", table) == (
        MeasuredGain("bf16", "bf16", "dlojz.py", "NVIDIA H200", 2.5, 2.4, 2.6, "benchmarks/results/x.csv"),
    )
    assert measured_gains("compile", table) == ()
    assert measured_gains("bf16", tmp_path / "absent.csv") == ()


def test_every_row_of_the_shipped_table_is_a_practice_with_an_interval_and_an_existing_source():
    assert GAINS.is_file()
    repository = Path(__file__).parent.parent.parent
    for practice in names():
        for gain in measured_gains(practice):
            assert gain.low <= gain.ratio <= gain.high
            assert (repository / gain.source_file).is_file()
