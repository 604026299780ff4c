"""What a finder recommends, in a terminal: its command can be copied."""

from __future__ import annotations

from pathlib import Path

from report.made import in_terminal

from vivace.records.search import BatchSearch, BatchTried, LoaderSearch, LoaderTried
from vivace.report.run_folder import RunFolder
from vivace.report.run_page import run_page
from vivace.report.search_view import batch_view, loader_view

FOLDER = Path("runs/train-001")
LONG = "python train.py " + " ".join(f"--option-{n} value" for n in range(20))
HIDDEN = f"{LONG} --token '***'"


def batch(run_with: str) -> BatchSearch:
    tried = (BatchTried(size=8, outcome="ok", samples_per_s=1.0),)
    return BatchSearch(
        command=("python",), flag="-b", tried=tried, margin_gib=2.0, knee=8, largest=8, run_with=run_with
    )


def loader(run_with: str) -> LoaderSearch:
    tried = (LoaderTried(words=("workers=2",), workers=2, outcome="ok", samples_per_s=1.0),)
    return LoaderSearch(
        command=("python",), tried=tried, limits=True, workers=2, words=("workers=2",), run_with=run_with, by_hand=LONG,
        complete=True,
    )  # fmt: skip


def test_no_line_to_copy_is_broken_at_the_width_of_the_terminal():
    assert in_terminal(batch_view(batch(LONG))).endswith(f"\n  {LONG}\n")
    assert in_terminal(loader_view(loader(LONG))).endswith(f"\n  {LONG}\n  {LONG}\n")


def test_page_and_terminal_say_alike_whether_memory_was_the_limit():
    found = batch(LONG)
    assert "largest that was run: 8 (memory was not the limit)" in in_terminal(batch_view(found))
    page = run_page(RunFolder(FOLDER, batch=found))
    assert "The largest that was run is 8: memory was not the limit." in page
    assert "leaves 2.00 GiB" not in page
    limited = found.model_copy(update={"first_too_large": 9, "memory": "GPU"})
    page = run_page(RunFolder(FOLDER, batch=limited))
    assert "The largest that leaves 2.00 GiB of GPU memory free is 8." in page


def test_the_headline_of_a_loader_names_what_its_command_sets():
    both = loader(LONG).model_copy(update={"words": ("workers=1", "prefetch=8"), "workers": 1, "prefetch": 8})
    assert "<h1>1 worker, prefetch 8</h1>" in run_page(RunFolder(FOLDER, loader=both))
    assert "\n1 worker, prefetch 8\n" in in_terminal(loader_view(both))
    alone = loader(LONG).model_copy(update={"prefetch": 2})  # the script's own
    assert "<h1>2 workers</h1>" in run_page(RunFolder(FOLDER, loader=alone))


def test_a_search_that_was_interrupted_has_no_answer_yet_or_the_best_so_far():
    own = LoaderTried(words=(), workers=0, outcome="ok", samples_per_s=0.5)
    interrupted = loader(LONG).model_copy(update={"complete": False, "ended": "interrupted"})
    first = interrupted.model_copy(update={"tried": (own,), "words": (), "workers": 0, "run_with": "", "by_hand": ""})
    text = in_terminal(loader_view(first))
    assert "No answer yet: only the script's own setting was run." in text
    assert "chosen" not in text
    later = interrupted.model_copy(update={"tried": (own, *interrupted.tried)})
    assert "The best so far: 2 workers" in in_terminal(loader_view(later))


def test_a_hidden_value_is_asked_for():
    asked = f"\n  {HIDDEN}\n  put your own value for ***\n"
    assert asked in in_terminal(batch_view(batch(HIDDEN)))
    assert asked in in_terminal(loader_view(loader(HIDDEN)))
    for run in (RunFolder(FOLDER, batch=batch(HIDDEN)), RunFolder(FOLDER, loader=loader(HIDDEN))):
        assert "Put your own value for ***." in run_page(run)
    assert "your own value" not in run_page(RunFolder(FOLDER, batch=batch(LONG)))
