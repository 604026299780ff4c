"""The journal survives what killed writers, full disks and foreign locks do to it, and stays Optuna's."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

from vivace.hpo.identity import Identity, me
from vivace.hpo.journal import RepairingJournal
from vivace.hpo.locking import FileLock
from vivace.hpo.storage import JOURNAL, open_storage

optuna.logging.set_verbosity(optuna.logging.ERROR)


def _study(folder: Path) -> optuna.Study:
    return optuna.create_study(storage=open_storage(folder), study_name="s", load_if_exists=True)


def _run(study: optuna.Study, trials: int = 1) -> None:
    for _ in range(trials):
        trial = study.ask({"x": optuna.distributions.FloatDistribution(0, 1)})
        study.tell(trial, trial.params["x"])


@pytest.mark.parametrize(
    "torn", [b"{", b'{"op_code":4,"worker_id":"a","study_id":0', b'{"op_code":4}', b"\xff" * 70000]
)
def test_a_torn_last_line_is_cut_and_the_study_goes_on(tmp_path: Path, torn: bytes) -> None:
    study = _study(tmp_path)
    _run(study, 2)
    with open(tmp_path / JOURNAL, "ab") as file:
        file.write(torn)
    _run(study)  # a worker that was there before
    _run(_study(tmp_path))  # and one that comes later
    assert [trial.state.name for trial in _study(tmp_path).trials] == ["COMPLETE"] * 4
    vanilla = JournalStorage(JournalFileBackend(str(tmp_path / JOURNAL), JournalFileOpenLock(str(tmp_path / JOURNAL))))
    assert len(optuna.load_study(study_name="s", storage=vanilla).trials) == 4  # what optuna-dashboard does


def test_optuna_itself_loses_such_a_study(tmp_path: Path) -> None:
    """Why the repair is needed. When this fails, Optuna has mended it."""
    path = str(tmp_path / "j.log")

    def study() -> optuna.Study:
        storage = JournalStorage(JournalFileBackend(path, JournalFileOpenLock(path)))
        return optuna.create_study(storage=storage, study_name="s", load_if_exists=True)

    _run(study())
    with open(path, "ab") as file:
        file.write(b'{"op_code":4,"worker_id"')
    with pytest.raises((AttributeError, ValueError)):
        _run(study())
    with open(path, "ab") as file:
        file.write(b"{}\n")
    with pytest.raises(ValueError, match="delimiter"):  # and from then on so does everybody
        study()


def test_a_full_disk_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = _study(tmp_path)
    _run(study)
    before, pwrite = (tmp_path / JOURNAL).read_bytes(), os.pwrite

    def full(handle: int, data: bytes, at: int) -> int:
        if len(data) < 8:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return pwrite(handle, data[: len(data) // 2], at)

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="No space"):
            study.ask()
    assert (tmp_path / JOURNAL).read_bytes() == before
    assert not (tmp_path / f"{JOURNAL}.lock").exists()
    _run(study)
    assert len(study.trials) == 2


@given(cut=st.integers(0, 400))
def test_a_journal_cut_anywhere_can_be_read_and_continued(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    folder = tmp_path_factory.mktemp("cut")
    journal = RepairingJournal(folder / JOURNAL)
    records = [{"op_code": 10, "worker_id": "w", "n": n} for n in range(8)]
    journal.append_logs(records)
    data = (folder / JOURNAL).read_bytes()
    (folder / JOURNAL).write_bytes(data[:cut])
    journal = RepairingJournal(folder / JOURNAL)
    whole = data[:cut].count(b"\n")
    assert list(journal.read_logs(0)) == records[:whole]
    journal.append_logs(records[-1:])
    assert list(journal.read_logs(0)) == [*records[:whole], records[-1]]


def test_the_lock_of_a_killed_holder_is_taken_at_once(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    code = (
        "import os, sys; from pathlib import Path; from vivace.hpo.locking import FileLock\n"
        "FileLock(Path(sys.argv[1])).acquire(); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert path.exists()
    began = time.monotonic()
    with FileLock(path, grace_s=600).held():
        assert Identity.from_json(path.read_text()) == me()
    assert time.monotonic() - began < 300  # the grace was not waited for
    assert not path.exists()


@pytest.mark.parametrize("kind", ["optuna's link", "another machine", "empty"])
def test_a_lock_whose_holder_cannot_be_asked_is_broken_after_its_grace(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "lock"
    if kind == "optuna's link":
        path.symlink_to("nowhere/journal.log")
    elif kind == "another machine":
        path.write_text(Identity("elsewhere", 1, 0.0, "x").to_json())
    else:
        path.touch()
    began = time.monotonic()
    with FileLock(path, grace_s=0.3).held():
        assert time.monotonic() - began >= 0.3


def test_a_living_holder_keeps_its_lock_for_as_long_as_it_likes(tmp_path: Path) -> None:
    lock, order = FileLock(tmp_path / "lock", grace_s=0.05), []
    lock.acquire()
    code = (
        "import sys; from pathlib import Path; from vivace.hpo.locking import FileLock\n"
        "print('waiting', flush=True); FileLock(Path(sys.argv[1]), 0.05).acquire(); print('got it', flush=True)"
    )
    other = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "lock")], stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    assert other.stdout.readline() == "waiting\n"
    reader = threading.Thread(target=lambda: order.append(other.stdout.readline()))
    reader.start()
    time.sleep(0.5)
    order.append("released")
    lock.release()
    reader.join()
    other.wait()
    assert order == ["released", "got it\n"]


def test_only_the_holder_releases(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_text(Identity("elsewhere", 1, 0.0, "x").to_json())
    FileLock(path).release()
    assert path.exists()
