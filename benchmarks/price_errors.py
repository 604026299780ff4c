"""How far are prices from what fixes really bring? Every recorded pair, priced by today's code.

    python benchmarks/price_errors.py
    python benchmarks/price_errors.py --folder OUTPUT_OF_PRICE_TRIALS --write nowhere

Two sources. `price_measurements.jsonl` and `price_gains.csv` (by `price_trials.py`): the measurement is diagnosed
again, so a change of the code shows at once and no GPU is needed. `planted_defects.csv`: rows that recorded ``likely``
when they were taken. ``likely`` is right when it is within 25 % of the gain: between gain / 1.25 and gain x 1.25. The
bound holds when it is not below the gain. Jobs in HELD_OUT were not looked at when constants were chosen. Writes
results/price_errors.csv and prints a summary.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vivace.records.measurement import Measurement
from vivace.tune.diagnosis import diagnose

RESULTS = Path(__file__).parent / "results"
FIELDS = (
    "practice", "job", "before", "device", "held_out", "bound", "likely", "low", "high", "gain", "gain_low",
    "gain_high", "within_25", "gain_in_range", "bound_held", "note",
)  # fmt: skip
HELD_OUT = ("convnet_large", "gpt_wide", "gpt", "photos_light")
CLOSE = 1.25
WORTH_FINDING = 1.05


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=RESULTS, help="where the recorded tables lie")
    parser.add_argument("--write", type=Path, default=RESULTS / "price_errors.csv")
    args = parser.parse_args()
    rows = [*recomputed(args.folder), *recorded(RESULTS / "planted_defects.csv")]
    if args.write.name != "nowhere":
        with args.write.open("w", newline="") as file:
            writer = csv.DictWriter(file, FIELDS, restval="", lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    for row in rows:
        print("  ".join(f"{row.get(name, '')!s:>{width}}" for name, width in SHOWN.items()))
    for line in summary(rows):
        print(line)


SHOWN = {
    "practice": 24, "job": 14, "before": 18, "bound": 7, "likely": 7, "low": 7, "high": 7, "gain": 7, "within_25": 6,
    "bound_held": 6, "held_out": 6, "note": 0,
}  # fmt: skip


def recomputed(folder: Path) -> Iterator[dict[str, Any]]:
    measured = {}
    for line in _lines(folder / "price_measurements.jsonl"):
        kept = json.loads(line)
        record = Measurement.model_validate(kept["measurement"])
        measured[kept["job"], kept["words"], record.clock == "gpu"] = record
    for gain in _rows(folder / "price_gains.csv"):
        row = {
            "practice": gain["practice"], "job": gain["job"], "before": gain["before"], "device": gain["hardware"],
            "held_out": gain["job"] in HELD_OUT,
        }  # fmt: skip
        row |= {name: float(gain[name]) for name in ("gain", "gain_low", "gain_high")}
        measurement = measured.get((gain["job"], gain["before"], "CPU" not in gain["hardware"]))
        yield row | (priced(measurement, row) if measurement is not None else {"note": "not measured"})


def priced(measurement: Measurement, row: dict[str, Any]) -> dict[str, Any]:
    found = {finding.practice: finding for finding in diagnose(measurement)}
    finding = found.get(row["practice"].partition("=")[0])
    if finding is None:
        joined = next((f.practice for f in found.values() if row["practice"] in getattr(f, "also", ())), None)
        return {"note": f"part of {joined}" if joined else "not found"}
    if finding.setting != row["practice"] and row["practice"].startswith("compile"):
        return {"note": f"priced as {finding.setting}"}
    return judged(finding.worth, finding.likely, finding.likely_low, finding.likely_high, row)


def recorded(path: Path) -> Iterator[dict[str, Any]]:
    """Rows of the planted defects that came with a likely speedup; the last of each script is today's."""
    latest = {(row["rule"], row["practice"]): row for row in _rows(path) if row.get("likely") and row["gain"]}
    for taken in latest.values():
        row = {"practice": taken["practice"], "job": taken["rule"], "device": taken["hardware"], "held_out": False}
        row |= {name: float(taken[name]) for name in ("gain", "gain_low", "gain_high")}
        prices = (float(taken[name]) for name in ("worth", "likely", "likely_low", "likely_high"))
        yield row | judged(*prices, row)


def judged(bound: float, likely: float, low: float, high: float, row: dict[str, Any]) -> dict[str, Any]:
    gain = row["gain"]
    rounded = {
        name: round(value, 3) for name, value in (("bound", bound), ("likely", likely), ("low", low), ("high", high))
    }
    return {
        **rounded,
        "within_25": gain / CLOSE <= likely <= gain * CLOSE,
        "gain_in_range": low <= gain <= high,
        "bound_held": bound >= gain,
    }


def summary(rows: list[dict[str, Any]]) -> Iterator[str]:
    prices = [row for row in rows if "likely" in row]
    for title, some in (
        ("all", prices),
        ("calibrated on", [row for row in prices if not row["held_out"]]),
        ("held out", [row for row in prices if row["held_out"]]),
    ):
        if some:
            near, inside, bounds = (sum(row[name] for row in some) for name in JUDGED)
            broken = [row for row in some if not row["bound_held"]]
            noise = sum(row["bound"] >= row["gain_low"] for row in broken)
            yield (
                f"{title}: {near} of {len(some)} within 25 %, the gain in the range {inside}, the bound held {bounds} "
                f"({noise} of the other {len(broken)} within the noise of the gain)"
            )
    missed = [row for row in rows if row.get("note") == "not found" and row["gain"] >= WORTH_FINDING]
    yield f"not found although 5 % or more: {', '.join(_name(row) for row in missed) or 'none'}"


JUDGED = ("within_25", "gain_in_range", "bound_held")


def _name(row: dict[str, Any]) -> str:
    return f"{row['practice']} of {row['job']} {row['before']} ({row['gain']:.2f}x)"


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.is_file() else []


def _rows(path: Path) -> list[dict[str, str]]:
    if not path.is_file():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


if __name__ == "__main__":
    main()
