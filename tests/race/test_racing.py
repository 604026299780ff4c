"""Whole races of a small public-style script, its metric read from what it prints."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Done, interrupted

from vivace.errors import ExitCode

DIGITS = str(Path(__file__).parent / "scripts" / "digits.py")
Vivace = Callable[..., Done]


def command(*arguments: str) -> str:
    return " ".join([sys.executable, DIGITS, *arguments])


def race(vivace: Vivace, *arguments: str, **more: object) -> Done:
    return vivace("race", "--json", *arguments, **more)


def test_the_faster_entry_is_found_and_the_race_ends_early(vivace_here: Vivace):
    done = race(
        vivace_here, "--until", "accuracy >= 0.95", "--seeds", "8", "--limit", "40ep",
        "--entry", f"slow: {command('--lr', '0.01', '--epochs', '60')}",
        "--entry", f"fast: {command('--lr', '0.3', '--epochs', '60')}",
    )  # fmt: skip
    record = done.record
    slow, fast = record["results"]
    assert (slow["name"], slow["verdict"], fast["name"]) == ("slow", None, "fast")
    assert fast["arrived"] == fast["of"] == len({run["seed"] for run in record["runs"]})
    # An epoch is 12 steps of 32. On a busy machine a line is read long after it was printed: the process says when.
    for run in record["runs"]:
        assert run["steps"] == 12 * run["epoch"] == 12 * len(run["curve"])
        assert run["samples"] == 32 * run["steps"]
        assert run["metric"] == "Validation Accuracy"
        assert run["curve"][-1]["value"] == run["best"] >= 0.95
        assert 0 < run["time_s"] < run["wall_s"]
        assert run["start_up_s"] > 0
    assert fast["fewer_steps"]["value"] > 1
    assert [run["entry"] for run in record["runs"][:2]] == ["slow", "fast"]
    assert record["clock"] == "training"
    (page,) = [done.folder / "race.json"]
    assert json.loads(page.read_text())["complete"]
    told = vivace_here("report", str(done.folder))
    html = (done.folder / "report.html").read_text()
    assert told.code == 0
    assert "Learning curves" in html
    assert html.count("<polyline") == 2 * len(record["runs"])


def test_seeds_change_the_run_and_the_same_seed_repeats_it(vivace_here: Vivace):
    """Two entries with one command: the same curves round by round, other ones in other rounds."""
    done = race(
        vivace_here, "--until", "accuracy >= 2.0", "--seeds", "2", "--all-seeds",
        "--entry", f"a: {command('--epochs', '2')}", "--entry", f"b: {command('--epochs', '2')}",
    )  # fmt: skip
    curves = {(run["entry"], run["seed"]): [p["value"] for p in run["curve"]] for run in done.record["runs"]}
    losses = {key: tuple(values) for key, values in curves.items()}
    assert losses["a", 0] == losses["b", 0] != losses["a", 1] == losses["b", 1]
    assert [run["outcome"] for run in done.record["runs"]] == ["ended"] * 4
    assert done.record["results"][1]["speedup"] is None


def test_practices_are_raced_against_the_command_as_it_is(vivace_here: Vivace):
    done = race(
        vivace_here, "--until", "val_loss <= 0.5", "--seeds", "1", "--with", "foreach_optimizer", "--",
        sys.executable, DIGITS,
    )  # fmt: skip
    assert [(e["name"], e["practices"]) for e in done.record["entries"]] == [
        ("as it is", []), ("foreach_optimizer", ["foreach_optimizer"])
    ]  # fmt: skip
    assert [run["outcome"] for run in done.record["runs"]] == ["arrived", "arrived"]
    assert done.record["results"][1]["speedup"]["low"] == 0  # one seed bounds nothing


def test_a_practice_that_does_not_apply_ends_the_race(vivace_here: Vivace):
    done = race(vivace_here, "--until", "val_loss <= 0.1", "--with", "gpu_prefetch", "--", sys.executable, DIGITS)
    assert done.code == ExitCode.NOTHING
    assert "gpu_prefetch does not apply" in done.err


@pytest.mark.parametrize(
    ("until", "arguments", "says"),
    [
        ("val_f1 >= 0.9", (), "val_f1 never appeared; seen were:"),
        ("accuracy >= 0.9", ("--percent",), "the script prints percent"),
        ("accuracy >= 0.999", ("--crash-at", "1"), "failed with exit code 1 before its first evaluation: RuntimeError"),
    ],
)
def test_what_cannot_be_raced_is_told_with_what_was_seen(
    vivace_here: Vivace, until: str, arguments: tuple[str, ...], says: str
):
    done = race(
        vivace_here, "--until", until, "--entry", f"a: {command(*arguments, '--epochs', '2')}", "--entry", "b: true"
    )
    assert done.code == ExitCode.NOTHING
    assert says in done.err


def test_a_crash_after_evaluations_is_a_run_that_never_arrived(vivace_here: Vivace):
    done = race(
        vivace_here, "--until", "accuracy >= 0.999999", "--seeds", "1",
        "--entry", f"a: {command('--crash-at', '2')}", "--entry", f"b: {command('--epochs', '1')}",
    )  # fmt: skip
    assert [run["outcome"] for run in done.record["runs"]] == ["crashed", "ended"]
    assert any("counts as never arrived: RuntimeError: out of ideas" in note for note in done.record["notes"])


def test_confirm_wants_several_evaluations_in_a_row_and_counts_the_first(tmp_path: Path, vivace_here: Vivace):
    script = tmp_path / "jumpy.py"
    script.write_text(
        "for epoch, acc in enumerate((0.5, 0.95, 0.5, 0.96, 0.97, 0.98)):\n    print('val acc', acc, 'epoch', epoch)\n"
    )
    done = race(
        vivace_here, "--until", "accuracy >= 0.9", "--seeds", "1", "--confirm", "2", "--clock", "wall",
        "--entry", f"a: {sys.executable} {script}", "--entry", f"b: {sys.executable} {script}",
    )  # fmt: skip
    for run in done.record["runs"]:
        assert (run["outcome"], [point["value"] for point in run["curve"]][3:5]) == ("arrived", [0.96, 0.97])
        assert run["time_s"] == pytest.approx(run["curve"][3]["time_s"])
    assert "counts everything" in done.record["notes"][-1]


def test_a_command_without_torch_needs_the_wall_clock(tmp_path: Path, vivace_here: Vivace):
    script = tmp_path / "plain.py"
    script.write_text("print('val loss 0.5')\n")
    entries = ("--entry", f"a: {sys.executable} {script}", "--entry", f"b: {sys.executable} {script}")
    done = race(vivace_here, "--until", "val_loss <= 1", *entries)
    assert done.code == ExitCode.NOTHING
    assert "--clock wall" in done.err


def test_an_interrupted_race_goes_on_where_it_stopped(tmp_path: Path, vivace_here: Vivace):
    arguments = (
        "race", "--json", "--until", "accuracy >= 2", "--seeds", "2", "--name", "stopped",
        "--entry", f"a: {command('--epochs', '1')}", "--entry", f"b: {command('--epochs', '100000')}",
    )  # fmt: skip
    folder = tmp_path / "vivace-runs" / "stopped-001"
    running = folder / "runs" / "0-1-b" / "stdout.log"
    stopped = interrupted(arguments, tmp_path, lambda: running.exists() and running.stat().st_size > 0)
    assert stopped.code == ExitCode.INTERRUPTED
    assert stopped.record["interrupted"]
    assert [run["entry"] for run in stopped.record["runs"]] == ["a"]
    assert f"vivace race --resume vivace-runs/{folder.name}" in stopped.err
    first = (folder / "runs" / "0-0-a" / "run.json").stat().st_mtime_ns
    asked = json.loads((folder / "asked.json").read_text())
    asked["entries"][1]["command"][-1] = "1"  # nobody waits for 100,000 epochs
    (folder / "asked.json").write_text(json.dumps(asked))
    done = race(vivace_here, "--resume", str(folder))
    assert (done.code, done.record["complete"], len(done.record["runs"])) == (0, True, 4)
    assert (folder / "runs" / "0-0-a" / "run.json").stat().st_mtime_ns == first
    refused = race(vivace_here, "--resume", str(folder), "--seeds", "5")
    assert refused.code == ExitCode.NOTHING
    assert "--seeds cannot be changed with --resume" in refused.err


def test_wrong_command_lines_are_told(vivace_here: Vivace):
    for arguments, says in (
        (("--with", "bf16", "--", "python", "x.py"), "--until"),
        (("--until", "accuracy", "--with", "bf16", "--", "python", "x.py"), "not a target"),
        (("--until", "a >= 1", "--", "python", "x.py"), "a race needs two entries"),
        (("--until", "a >= 1", "--entry", "python x.py"), "not a name and a command"),
        (("--until", "a >= 1", "--entry", "a: x", "--entry", "a: y"), "two entries are called 'a'"),
        (("--until", "a >= 1", "--limit", "soon", "--entry", "a: x", "--entry", "b: y"), "--limit 'soon'"),
    ):
        done = race(vivace_here, *arguments)
        assert (done.code, says in done.err) == (ExitCode.NOTHING, True), done.err
