"""Advice about where results lie, from the site's own table."""

from __future__ import annotations

from pathlib import Path

from vivace.launch.storage import storage_notes
from vivace.launch.target import Target, find_target

SPACES = {
    "HOME": "/home/me",
    "WORK": "/lustre/work/abc",
    "SCRATCH": "/lustre/scratch/abc",
    "STORE": "/lustre/store",
}


def test_results_in_a_small_or_slow_space_get_a_note_with_better_places():
    target = find_target("jean-zay-a100")
    (note,) = storage_notes(target, Path("/home/me/runs"), SPACES)
    assert "$HOME" in note
    assert "$WORK or $SCRATCH" in note
    assert "$STORE" in storage_notes(target, Path("/lustre/store/x"), SPACES)[0]
    assert "30 days" in storage_notes(target, Path("/lustre/scratch/abc/runs"), SPACES)[0]
    assert storage_notes(target, Path("/lustre/work/abc/runs"), SPACES) == []


def test_elsewhere_and_where_nothing_is_known_there_is_nothing_to_say():
    assert storage_notes(find_target("jean-zay-a100"), Path("/elsewhere"), SPACES) == []
    assert storage_notes(Target(name="x", gpus_per_node=4), Path("/home/me"), SPACES) == []
