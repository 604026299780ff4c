"""The waterfall that docs/ledger.md explains: one real job (ledger_jobs/everyday.py) on this CPU, all rows as a CSV.

    python benchmarks/ledger_waterfall.py

Writes results/ledger_waterfall.csv and prints what `vivace measure` shows.
"""

from __future__ import annotations

import csv
import sys
import tempfile
from pathlib import Path

from rows import hardware

from vivace.cli.console import make_console
from vivace.measure.command import nowhere
from vivace.measure.measuring import Request, measure
from vivace.report.ledger_view import ledger_view, lines_view

HERE = Path(__file__).parent
FIELDS = ("part", "cause", "name", "line", "code", "via", "ms", "share", "waiting_ms", "step_ms", "torch", "hardware")


def main() -> None:
    job = HERE / "ledger_jobs" / "everyday.py"
    with tempfile.TemporaryDirectory() as folder:
        request = Request(command=(sys.executable, str(job)), steps=40, lines=True, output=Path(folder))
        record = measure(request, nowhere, lambda _: None).measurement
    assert record is not None
    ledger = record.ledger
    assert ledger is not None
    fixed = {"step_ms": round(ledger.step_ms, 2), **hardware("cpu")}
    with (HERE / "results" / "ledger_waterfall.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, restval="", lineterminator="\n")
        writer.writeheader()
        for row in ledger.rows:
            place = {"line": row.where.line, "code": row.where.code} if row.where else {}
            times = {"ms": round(row.ms, 3), "share": round(row.ms / ledger.step_ms, 4)}
            waiting = {"waiting_ms": round(row.waiting_ms, 3)}
            writer.writerow(
                {
                    "part": "row",
                    "cause": row.cause,
                    "name": row.name,
                    "via": row.via,
                    **place,
                    **times,
                    **waiting,
                    **fixed,
                }
            )
        unexplained = {"ms": round(ledger.unexplained_ms, 3), "share": round(1 - ledger.explained, 4)}
        writer.writerow({"part": "row", "cause": "unexplained", "name": "not explained", **unexplained, **fixed})
    console = make_console()
    console.print(ledger_view(ledger))
    console.print(lines_view(ledger))


if __name__ == "__main__":
    main()
