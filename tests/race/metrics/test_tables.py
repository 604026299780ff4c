"""CSV and JSON files, as scripts write them: line by line, or the whole file again each epoch."""

from __future__ import annotations

import json
from pathlib import Path

from vivace.race.metrics.readings import Source
from vivace.race.metrics.tables import TableFile
from vivace.race.metrics.written import WrittenFiles


def rows_of(table: TableFile) -> list[tuple[dict[str, float], float | None]]:
    return [({pair.text: pair.value for pair in parsed.pairs}, parsed.epoch) for parsed, _text in table.read()]


def test_csv_rows_come_once_each_and_only_when_whole(tmp_path: Path):
    path = tmp_path / "log.csv"
    path.write_text("epoch,val_loss,name\n")
    table = TableFile(path)
    assert rows_of(table) == []
    with path.open("a") as file:
        file.write("1,0.5,x\n2,0.")
        file.flush()
        assert rows_of(table) == [({"val_loss": 0.5}, 1)]
        file.write('25,"a, b"\n3,87%,x\n')
    assert rows_of(table) == [({"val_loss": 0.25}, 2), ({"val_loss": 0.87}, 3)]
    assert table.source is Source.CSV


def test_a_csv_file_that_is_written_anew_begins_again(tmp_path: Path):
    path = tmp_path / "log.csv"
    path.write_text("epoch;acc\n1;0.1\n2;0.2\n3;0.3\n")
    table = TableFile(path, skip_old=True)
    assert rows_of(table) == []
    path.write_text("epoch;acc\n")
    assert rows_of(table) == []
    path.write_text("epoch;acc\n1;0.7\n")
    assert rows_of(table) == [({"acc": 0.7}, 1)]


def test_json_lines_and_json_documents(tmp_path: Path):
    lines, history, log = tmp_path / "m.jsonl", tmp_path / "history.json", tmp_path / "log.json"
    lines.write_text('{"val": {"loss": 2}, "epoch": 1}\n{"val": {"lo')
    assert rows_of(TableFile(lines)) == [({"val/loss": 2}, 1)]
    table = TableFile(history)
    assert rows_of(table) == []
    for count in (1, 2, 2, 3):
        history.write_text(json.dumps({"val_acc": [0.1, 0.2, 0.3][:count], "epoch": [0, 1, 2][:count]}))
    assert [row for row, _epoch in rows_of(table)] == [{"val_acc": 0.1}, {"val_acc": 0.2}, {"val_acc": 0.3}]
    log.write_text('[{"acc": 0.5}')
    assert rows_of(TableFile(log)) == []
    log.write_text('[{"acc": 0.5}, {"acc": 0.6}]')
    assert [row for row, _epoch in rows_of(TableFile(log))] == [{"acc": 0.5}, {"acc": 0.6}]


def test_files_appear_later_and_old_ones_are_not_read(tmp_path: Path):
    (tmp_path / "runs" / "old").mkdir(parents=True)
    (tmp_path / "runs" / "old" / "m.csv").write_text("acc\n0.9\n")
    written = WrittenFiles(("runs/*/m.csv",), tmp_path)
    assert written.read() == []
    (tmp_path / "runs" / "new").mkdir()
    (tmp_path / "runs" / "new" / "m.csv").write_text("acc\n0.4\n")
    ((parsed, _at, source, text),) = written.read()
    assert ([pair.value for pair in parsed.pairs], source, text) == ([0.4], Source.CSV, "0.4")
