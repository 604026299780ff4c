"""How much of public DeepSpeed configurations ``vivace explain`` translates.

    python benchmarks/deepspeed_configs.py CLONE …      clones of repositories, searched for *.json

Used with microsoft/DeepSpeedExamples and huggingface/accelerate. A file counts if vivace takes it for a DeepSpeed
configuration. ``legal``: the layout and settings that come out can be trained on 8 processes. Writes
results/deepspeed_configs.csv.
"""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path

from vivace.errors import UserError
from vivace.records.explained import Answer
from vivace.train.deepspeed.reading import read_config
from vivace.train.deepspeed.translate import translate
from vivace.train.settings import TrainSettings, check, with_changes

RESULTS = Path(__file__).parent / "results" / "deepspeed_configs.csv"
RANKS = 8
_NAMED = re.compile(r"ds_|deepspeed|zero", re.IGNORECASE)


def row(clone: Path, path: Path) -> dict[str, object] | None:
    """None: it is something else, or a template that is no JSON."""
    try:
        explained = translate(read_config(path), path.name, RANKS)
    except UserError:
        return None
    settings = with_changes(TrainSettings(layout=explained.layout), explained.settings)
    try:
        check(settings, RANKS)
        legal = "yes"
    except UserError as refused:
        legal = refused.message
    counts = {str(answer).replace(" ", "_"): explained.count(answer) for answer in Answer}
    name = f"{clone.name}/{path.relative_to(clone)}"
    return {"file": name, "keys": len(explained.keys), **counts, "layout": str(explained.layout), "legal": legal}


def main() -> None:
    rows = []
    for clone in map(Path, sys.argv[1:]):
        paths = sorted(path for path in clone.rglob("*.json") if _NAMED.search(str(path.relative_to(clone))))
        rows += [found for path in paths if (found := row(clone, path)) is not None]
    with RESULTS.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    totals = {key: sum(int(str(one[key])) for one in rows) for key in list(rows[0])[1:-2]}
    print(len(rows), "files", totals, sum(one["legal"] == "yes" for one in rows), "legal")


if __name__ == "__main__":
    main()
