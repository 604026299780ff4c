"""``vivace check``: what it finds on a job whose limit is known, and what it does not."""

from __future__ import annotations

import sys
from pathlib import Path

from conftest import interrupted
from forked.process import PYTHON

SCRIPTS = Path(__file__).parent / "scripts"


def line_of(text: str) -> int:
    lines = (SCRIPTS / "slow_loader.py").read_text().splitlines()
    return next(number for number, line in enumerate(lines, start=1) if text in line)


def check(vivace, *arguments: str, options: tuple[str, ...] = ()):
    script = (sys.executable, str(SCRIPTS / "slow_loader.py"), *arguments)
    return vivace("check", "--json", "--steps", "8", *options, "--", *script)


def test_a_loader_that_keeps_the_step_waiting_is_found_located_and_priced(vivace_here):
    done = check(vivace_here)
    finding = next(f for f in done.record["findings"] if f["practice"] == "workers")
    assert finding["where"] == {"file": str(SCRIPTS / "slow_loader.py"), "line": line_of("DataLoader(Slow")}
    assert finding["worth"] > 1.2  # 40 of 80 ms; on a busy machine the rest takes longer too
    assert finding["applies"] is True
    assert finding["risk"] == "exact"
    assert finding["exposed_ms"] > 35
    assert done.record["cause"] == "data"
    assert (done.folder / "findings.json").is_file()
    assert (done.folder / "measurement.json").is_file()


def test_a_loader_that_keeps_up_is_not_found(vivace_here):
    done = check(vivace_here, "--load-ms", "1", "--think-ms", "400", "--workers", "1")
    assert "workers" not in [f["practice"] for f in done.record["findings"]]


def test_for_ci_the_exit_code_says_whether_too_much_is_left(vivace_here):
    assert check(vivace_here, options=("--fail-over", "1.2", "--no-probes")).code == 1
    assert check(vivace_here, options=("--fail-over", "60", "--no-probes")).code == 0  # never above 50


def test_time_that_no_practice_knows_has_a_line_all_the_same(vivace_here):
    """Of some 100 ms per step, loading explains 20. The other 80 are spent on one line, at every new batch."""
    script = (sys.executable, str(SCRIPTS / "slow_at_new_batches.py"))
    done = vivace_here("check", "--json", "--steps", "8", "--fail-over", "2.5", "--", *script)
    finding = next(f for f in done.record["findings"] if f["practice"] == "host_lines")
    lines = (SCRIPTS / "slow_at_new_batches.py").read_text().splitlines()
    assert "time.sleep" in lines[finding["where"]["line"] - 1]
    assert finding["exposed_ms"] > 60
    assert finding["evidence"]["waiting_ms"] > 60
    assert any("with the same batch again" in note for note in done.record["notes"])
    assert (done.record["verdict"], done.code) == ("improvable", 1)


def test_shapes_that_keep_changing_are_found_with_the_price_that_the_probe_measured(vivace_here):
    """80 ms for every new shape, and nearly all are new; the same batch again costs nothing of it."""
    script = (sys.executable, str(SCRIPTS / "new_shapes.py"))
    done = vivace_here("check", "--json", "--steps", "10", "--", *script)
    finding = next(f for f in done.record["findings"] if f["practice"] == "round_lengths")
    assert finding["exposed_ms"] > 60
    assert finding["worth"] > 2
    assert finding["evidence"]["new_shapes"] == 10
    assert finding["evidence"]["same_batch_ms"] < finding["exposed_ms"]
    assert not finding["applies"]
    assert "multiple" in finding["by_hand"]
    assert done.record["verdict"] == "improvable"
    assert done.record["unexplained"] is None


def test_a_run_that_is_too_short_to_tell_does_not_pass_in_ci(vivace_here):
    script = (sys.executable, str(SCRIPTS / "plain.py"), "--steps", "12")
    done = vivace_here("check", "--json", "--fail-over", "9", "--steps", "50", "--", *script)
    assert done.code == 3
    assert "not enough steps" in done.err
    assert "no kernels were profiled" in done.record["incomplete"]


def test_ctrl_c_in_a_differential_run_ends_them_all_and_keeps_the_findings(tmp_path: Path):
    script = (sys.executable, str(SCRIPTS / "slow_loader.py"))
    done = interrupted(
        ["check", "--json", "--steps", "8", "--", *script],
        tmp_path,
        lambda: any(tmp_path.glob("vivace-runs/*/probes/*/*.log")),
    )
    assert done.code == 130, done.err
    assert "workers" in [finding["practice"] for finding in done.record["findings"]]
    assert done.record["cause"] is None
    assert "Ctrl-C ended the differential runs" in done.record["incomplete"]
    assert (done.folder / "findings.json").is_file()


def test_a_command_that_does_not_train_says_so(vivace_here):
    done = vivace_here("check", "--json", "--", sys.executable, "-c", "import sys; sys.exit(4)")
    assert done.code == 2
    assert "nothing measured" in done.record["reason"]


def test_the_page_for_a_person_says_what_to_change(vivace_here):
    script = (PYTHON, str(SCRIPTS / "slow_loader.py"))
    done = vivace_here("check", "--quiet", "--steps", "8", "--no-probes", "--", *script)
    assert "num_workers=" in done.out
    assert f"slow_loader.py:{line_of('DataLoader(Slow')}" in done.out
    assert "likely speedup: " in done.out
