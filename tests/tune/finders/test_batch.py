"""``find_batch`` over trials that a stand-in answers: what each outcome means for the search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from report.made import made_measurement, made_trial, spread

from vivace.errors import UserError
from vivace.records.measurement import DeviceMemory, Loader, Memory, Rank
from vivace.records.search import BatchSearch
from vivace.records.trial import Trial
from vivace.tune import bench
from vivace.tune.finders.asked import Asked
from vivace.tune.finders.batch import find_batch

ASKED = Asked("batch", ("python", "train.py", "-b", "16"), flag="-b", budget_s=1e6)


@pytest.fixture
def search(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., BatchSearch]:
    """Run ``find_batch`` with ``answer(size, name) -> Trial`` in place of processes."""

    def run(answer: Callable[[int, str], Trial], asked: Asked = ASKED) -> BatchSearch:
        def stand_in(command: Sequence[str], _words: object, folder: Path, *_: object) -> Trial:
            size = int(command[command.index("-b") + 1]) if "-b" in command else 16
            return answer(size, folder.name)

        monkeypatch.setattr(bench, "run_trial", stand_in)
        return find_batch(asked, tmp_path, lambda *_: None, lambda _: None, lambda _: None)

    return run


@pytest.fixture
def search_with_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., BatchSearch]:
    """The same with ``answer(size, words) -> Trial``."""

    def run(answer: Callable[[int, tuple[str, ...]], Trial]) -> BatchSearch:
        def stand_in(command: Sequence[str], words: Sequence[str], *_: object) -> Trial:
            return answer(int(command[command.index("-b") + 1]), tuple(words))

        monkeypatch.setattr(bench, "run_trial", stand_in)
        return find_batch(ASKED, tmp_path, lambda *_: None, lambda _: None, lambda _: None)

    return run


def trained(size: int, name: str = "x", used_gib: float = 10.0, **more: object) -> Trial:
    memory = Memory(
        device=DeviceMemory(allocated_peak_gib=1, reserved_peak_gib=used_gib, total_gib=80.0, alloc_retries=0)
    )
    record = made_measurement(
        100.0, batch_size=size, global_batch_size=size, samples_per_s=10.0 * size, memory=memory, **more
    )
    return made_trial(name, (), None, measurement=record)


def failed(outcome: str, name: str = "x", message: str = "no") -> Trial:
    return made_trial(name, (), None, outcome=outcome, message=message)


def test_the_margin_decides_on_the_largest_size(search: Callable):
    found = search(lambda size, name: trained(size, name, used_gib=float(size)))
    assert found.largest == 72  # 80 GiB less the margin of 2: 78; 72 and 80 are an eighth apart
    assert found.first_too_large == 80
    assert (found.memory, found.limit_gib, found.complete) == ("GPU", 80.0, True)
    assert found.run_with == "python train.py -b 72"


def test_out_of_memory_is_a_result(search: Callable):
    found = search(lambda size, name: trained(size, name) if size <= 32 else failed("out-of-memory", name))
    assert [one.outcome for one in found.tried if one.size > 32] == ["out-of-memory"] * 4
    assert (found.knee, found.largest, found.first_too_large) == (32, 32, 36)


def test_a_flag_that_changes_nothing_is_an_error(search: Callable):
    with pytest.raises(UserError, match="-b 32 did not change the batch: 16 samples were measured"):
        search(lambda _size, name: trained(16, name))


def test_the_script_may_run_out_of_data_before_memory(search: Callable):
    found = search(lambda size, name: trained(min(size, 50), name))
    assert found.largest == 32
    assert "did not take this size: 50 samples" in found.ended


def test_a_flag_about_all_ranks_together_is_understood(search: Callable):
    found = search(lambda size, name: trained(size // 2, name) if size <= 32 else failed("out-of-memory", name))
    assert found.largest == 32
    assert [one.batch_size for one in found.tried if one.size == 32] == [16]


def accumulating(size: int, name: str, largest: int) -> Trial:
    """The flag is about the parts of an accumulated batch of 64."""
    if size > largest:
        return failed("out-of-memory", name)
    record = trained(64, name).measurement
    assert record is not None
    return made_trial(name, (), None, measurement=record.model_copy(update={"micro_batches": 64 / size}))


def test_micro_batches_may_change_while_the_global_batch_stays(search: Callable):
    found = search(lambda size, name: accumulating(size, name, largest=64))
    assert found.largest == 64
    assert found.advice == ()


def test_a_rank_that_did_not_complete_fails_the_size(search: Callable):
    def answer(size: int, name: str) -> Trial:
        count = 2 if size <= 16 else 1
        ranks = tuple(Rank(rank=n, host="a", device="cuda", step_ms=spread(1.0), phases_ms={}) for n in range(count))
        return trained(size, name, ranks=ranks)

    found = search(answer)
    assert found.largest == 16
    assert "only 1 of 2 ranks completed" in found.ended


def test_a_size_of_its_own_that_does_not_fit_is_halved(search: Callable):
    found = search(lambda size, name: trained(size, name) if size <= 8 else failed("out-of-memory", name))
    assert (found.own_size, found.largest) == (16, 8)
    assert "from 16 to 8 (0.5×)" in found.advice[0]
    assert found.advice[-1].startswith("to keep the global batch of 16: accumulate gradients over 2 micro-batches of 8")
    assert (found.memory, found.limit_gib) == ("GPU", 80.0)  # of the sizes that trained
    assert found.machine is not None


def test_an_own_size_that_does_not_fit_needs_no_advice_where_the_global_batch_stays(search: Callable):
    sizes = Asked("batch", ("python", "train.py", "-b", "16"), flag="-b", values=(4, 8), budget_s=1e6)
    found = search(lambda size, name: accumulating(size, name, largest=8), sizes)
    assert (found.own_size, found.largest) == (16, 8)
    assert found.advice == ()


def test_a_batch_that_cannot_be_read_is_an_error(search: Callable):
    def answer(_size: int, name: str) -> Trial:
        record = made_measurement(batch_size=None, samples_per_s=None)
        return made_trial(name, (), None, measurement=record)

    with pytest.raises(UserError, match="no batch size could be read"):
        search(answer)


def test_a_command_that_does_not_train_is_an_error(search: Callable):
    with pytest.raises(UserError, match="does not train as it is"):
        search(lambda _size, name: failed("crash", name))
    unknown = Asked("batch", ("python", "train.py"), flag="-b")
    with pytest.raises(UserError, match="out-of-memory"):
        search(lambda _size, name: failed("out-of-memory", name), unknown)


def test_a_flag_that_the_script_does_not_know_is_an_error(search: Callable):
    def answer(_size: int, name: str) -> Trial:
        return trained(16, name) if name.endswith("own") else failed("crash", name, "error: unrecognized arguments: -b")

    with pytest.raises(UserError, match="unrecognized arguments"):
        search(answer, Asked("batch", ("python", "train.py"), flag="-b"))


def test_variable_inputs_are_told_with_the_share_that_was_seen(search: Callable):
    def answer(size: int, name: str) -> Trial:
        loader = Loader(
            batch_size=16, num_workers=0, pin_memory=False, persistent_workers=False, prefetch_factor=None,
            iterable=False, epoch_batches=60,
        )  # fmt: skip
        more = {"input_shapes": 40, "loaders": (loader,)}
        return trained(size, name, **more) if size <= 16 else failed("out-of-memory", name)

    (note,) = [note for note in search(answer).notes if "different shapes" in note]
    assert "40 different shapes: the longest batch among the 6 steps seen decided (about 10.0% of an epoch)" in note


def varying(size: int, words: tuple[str, ...], used_gib: float, name: str = "x") -> Trial:
    told = dict.fromkeys(words, "applied: a batch of the 16 longest of 50 samples looked at, of 50")
    return trained(size, name, used_gib=used_gib, input_shapes=9, practices=told)


def test_where_inputs_vary_every_size_is_run_with_the_longest_batch_first(search_with_words: Callable):
    """1 GiB a sample in an ordinary batch, 2 in the longest: only half the size fits."""
    asked: list[tuple[int, tuple[str, ...]]] = []

    def answer(size: int, words: tuple[str, ...]) -> Trial:
        asked.append((size, words))
        return varying(size, words, (2.0 if words else 1.0) * size)

    found = search_with_words(answer)
    assert found.largest == 36  # 72 of 80 GiB; 40 would leave nothing
    assert asked[:2] == [(16, ()), (16, ("probe:longest_first=3",))]
    assert {words for _, words in asked[1:]} == {("probe:longest_first=3",)}
    assert [one.memory_gib for one in found.tried if one.size == 16] == [32.0]
    (note,) = [note for note in found.notes if "differ in length" in note]
    assert "a batch of the 16 longest of 50 samples" in note


def test_an_own_size_that_does_not_hold_its_longest_batch_is_told(search_with_words: Callable):
    def answer(size: int, words: tuple[str, ...]) -> Trial:
        return failed("out-of-memory") if words and size > 8 else varying(size, words, 10.0)

    found = search_with_words(answer)
    assert (found.own_size, found.largest) == (16, 8)
    assert any("the longest batch decided: this size does not hold it" in note for note in found.notes)


def test_where_the_own_size_does_not_fit_the_longest_batch_counts_from_the_first_that_does(search_with_words: Callable):
    asked: list[tuple[int, tuple[str, ...]]] = []

    def answer(size: int, words: tuple[str, ...]) -> Trial:
        asked.append((size, words))
        return failed("out-of-memory") if size > 8 else varying(size, words, 10.0)

    search_with_words(answer)
    assert asked[:3] == [(16, ()), (8, ()), (8, ("probe:longest_first=3",))]
    assert {words for _, words in asked[3:]} == {("probe:longest_first=3",)}


def test_the_longest_batch_comes_once_more_after_a_whole_accumulated_step(search_with_words: Callable):
    asked: list[tuple[str, ...]] = []

    def answer(size: int, words: tuple[str, ...]) -> Trial:
        asked.append(words)
        record = trained(4 * size, input_shapes=9, micro_batches=4.0).measurement
        return made_trial("x", (), None, measurement=record) if size <= 16 else failed("out-of-memory")

    search_with_words(answer)
    assert asked[1] == ("probe:longest_first=9",)


def test_where_the_longest_batch_cannot_be_had_it_says_why(search_with_words: Callable):
    def answer(size: int, words: tuple[str, ...]) -> Trial:
        if size > 16:
            return failed("out-of-memory")
        return trained(size, input_shapes=9, practices=dict.fromkeys(words, "the dataset is iterable"))

    (note,) = [note for note in search_with_words(answer).notes if "different shapes" in note]
    assert note.endswith("(the longest could not be put first: the dataset is iterable)")


def test_the_time_budget_ends_it_and_keeps_what_was_run(search: Callable, tmp_path: Path):
    found = search(trained, Asked("batch", ASKED.command, flag="-b", budget_s=5.0))  # a trial takes 3 s
    assert [one.size for one in found.tried] == [16]
    assert (found.complete, found.ended) == (False, "the time budget is used up")
    assert BatchSearch.load(tmp_path / "batch.json") == found


def test_an_interrupted_search_keeps_what_was_run(search: Callable):
    found = search(lambda size, name: trained(size, name) if size < 32 else failed("interrupted", name))
    assert [one.size for one in found.tried] == [16]
    assert (found.knee, found.complete, found.ended) == (16, False, "interrupted")
