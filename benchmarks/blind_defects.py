"""Does `vivace check` name what it was never shown? Pairs of scripts with a planted defect, written by somebody else.

    python benchmarks/blind_defects.py BLIND/open --controls BLIND/controls --output results.csv
    python benchmarks/blind_defects.py BLIND/open --only 07,15 --again

A folder has one folder per defect, with ``slow.py`` and ``fixed.py``. Beside it lies a CSV of the same name
(``open.csv``): id, cause, kind, line (numbers separated by ``;``), matters_on, measured_ratio_cpu.
``--controls`` is a folder of healthy scripts.

`vivace check --json` looks at every script, in an empty folder. What it prints is kept in ``--runs``, one file per
script: a run that was interrupted goes on where it stopped, and rows are judged again without running anything.

A defect is ``found`` if a finding names ``slow.py``, a line at most one away from a given one, and is no advice for
any script (``GENERIC``), unless it is the remedy of that kind of defect (``REMEDIES``). This is mechanical. The column
``judged`` is for a person; it is taken over from the old table. ``alarms_fixed`` is what the check says of the fixed
twin with a likely speedup of 1.05 or more. Of these, ``false_alarms`` are the ones that would count as found at the
changed lines; for controls, all that are not generic. Whether a generic alarm is true is not measured here.
"""

from __future__ import annotations

import argparse
import csv
import difflib
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rows import hardware, say

FIELDS = (
    "id", "kind", "cause", "matters_on", "found", "judged", "rank", "finding", "where", "likely", "worth", "measured",
    "explained", "best_finding", "alarms_fixed", "false_alarms", "step_ms", "step_ms_fixed", "note", "load",
    "hardware", "torch",
)  # fmt: skip
GENERIC = frozenset({
    "batch", "bf16", "channels_last", "compile", "cudnn_benchmark", "foreach_optimizer", "fp16", "fp8",
    "fused_optimizer", "onednn", "pure_bf16", "tensor_core_sizes", "tf32", "threads", "workers", "attention",
})  # fmt: skip
REMEDIES = {
    "data": {"workers"},
    "model": {"attention"},
    "numerics": {"bf16", "fp16", "pure_bf16", "tf32"},
    "optimizer": {"foreach_optimizer", "fused_optimizer"},
    "threads": {"threads"},
}
ALARM = 1.05
NEAR = 1  # lines
TIMEOUT_S = 300


@dataclass(frozen=True)
class Defect:
    id: str
    kind: str
    cause: str
    lines: tuple[int, ...]
    matters_on: str
    measured: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--controls", type=Path, help="folder of healthy scripts")
    parser.add_argument("--only", help="beginnings of ids, separated by commas: 07,15")
    parser.add_argument("--again", action="store_true", help="run again what has run already")
    parser.add_argument("--runs", type=Path, help="folder of the answers; default: beside the output")
    parser.add_argument("--output", type=Path, default=Path("blind_defects.csv"))
    parser.add_argument("--machine", default="", help="what to say of the machine: shared with other jobs")
    args = parser.parse_args()
    runs = (args.runs or args.output.with_suffix(".runs")).resolve()
    runs.mkdir(parents=True, exist_ok=True)
    wanted = tuple(args.only.split(",")) if args.only else ("",)
    defects, controls = read_defects(args.folder), sorted(args.controls.glob("*.py")) if args.controls else []
    for defect in defects:
        if defect.id.startswith(wanted):
            for side in ("slow", "fixed"):
                answer(args.folder / defect.id / f"{side}.py", runs / f"{defect.id}.{side}.json", args.again)
    for script in controls:
        if script.stem.startswith(wanted):
            answer(script, runs / f"{script.stem}.json", args.again)
    write(args.output, args.folder, defects, [script.stem for script in controls], runs, args.machine)


def read_defects(folder: Path) -> list[Defect]:
    with folder.with_suffix(".csv").open() as file:
        return [
            Defect(
                row["id"], row["kind"], row["cause"], tuple(map(int, row["line"].split(";"))), row["matters_on"],
                float(row["measured_ratio_cpu"]),
            )
            for row in csv.DictReader(file)
        ]  # fmt: skip


def answer(script: Path, kept: Path, again: bool) -> None:
    """Run the check as a user does, unless its answer is kept."""
    if kept.exists() and not again:
        return
    say(f"{script.parent.name}/{script.name}")
    with tempfile.TemporaryDirectory() as empty:
        command = [sys.executable, "-m", "vivace", "check", "--json", "--quiet", "--output", f"{empty}/vivace-runs"]
        command += ["--timeout", str(TIMEOUT_S), "--", sys.executable, str(script.resolve())]
        load = os.getloadavg()[0]
        done = subprocess.run(command, cwd=empty, capture_output=True, text=True, errors="replace")
        try:
            said = json.loads(done.stdout)
        except ValueError:
            said = {"reason": " / ".join(done.stderr.strip().splitlines()[-2:]) or f"exit {done.returncode}"}
        record = Path(said.get("measurement") or "none")
        if record.is_file():
            said["step_ms"] = (json.loads(record.read_text()).get("step_ms") or {}).get("mean")
    said["load"] = load
    part = kept.with_suffix(".part")
    part.write_text(json.dumps(said))
    part.replace(kept)


def write(output: Path, folder: Path, defects: list[Defect], controls: list[str], runs: Path, machine: str) -> None:
    judged = {row["id"]: row["judged"] for row in csv.DictReader(output.open())} if output.exists() else {}
    rows = [defect_row(defect, folder / defect.id, runs) for defect in defects]
    rows += [control_row(name, runs) for name in controls]
    fixed = hardware("cpu")
    fixed["hardware"] += f", {machine}" if machine else ""
    with output.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, restval="", lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({**row, **fixed, "judged": judged.get(row["id"], "")})
    print(summary(rows))


def defect_row(defect: Defect, folder: Path, runs: Path) -> dict[str, Any]:
    row = {"id": defect.id, "kind": defect.kind, "cause": defect.cause, "matters_on": defect.matters_on}
    slow, fixed = (read(runs / f"{defect.id}.{side}.json") for side in ("slow", "fixed"))
    row |= {"measured": defect.measured, "load": _rounded(slow.get("load"))}
    findings = slow.get("findings") or []
    hit = next((n for n, one in enumerate(findings) if hits(one, defect.kind, defect.lines, "slow.py")), None)
    alarms = [one for one in fixed.get("findings") or [] if one["likely"] >= ALARM]
    changed = changed_lines(folder) if folder.exists() else ()
    false = [one for one in alarms if hits(one, defect.kind, changed, "fixed.py")]
    row |= {
        "found": "yes" if hit is not None else "no", "rank": hit + 1 if hit is not None else "",
        "explained": _explained(slow), "alarms_fixed": _names(alarms), "false_alarms": _names(false),
        "best_finding": _names(findings[:1]), "step_ms": _rounded(slow.get("step_ms")),
        "step_ms_fixed": _rounded(fixed.get("step_ms")),
        "note": "; ".join(one["reason"] for one in (slow, fixed) if one.get("reason")),
    }  # fmt: skip
    return row | (_priced(findings[hit]) if hit is not None else {})


def control_row(name: str, runs: Path) -> dict[str, Any]:
    said = read(runs / f"{name}.json")
    alarms = [one for one in said.get("findings") or [] if one["likely"] >= ALARM]
    return {
        "id": name, "kind": "control", "explained": _explained(said), "alarms_fixed": _names(alarms),
        "false_alarms": _names([one for one in alarms if one["practice"] not in GENERIC]),
        "step_ms_fixed": _rounded(said.get("step_ms")), "load": _rounded(said.get("load")), "note": said.get("reason"),
    }  # fmt: skip


def hits(finding: dict[str, Any], kind: str, lines: tuple[int, ...], script: str) -> bool:
    """A finding about the defect: at its line, and no advice that any script gets."""
    if finding["practice"] in GENERIC - REMEDIES.get(kind, set()):
        return False
    places = [finding.get("where"), *finding.get("lines", ())]
    return any(
        place and Path(place["file"]).name == script and any(abs(place["line"] - line) <= NEAR for line in lines)
        for place in places
    )


def changed_lines(folder: Path) -> tuple[int, ...]:
    """Lines of the fixed script that are not in the slow one."""
    slow, fixed = ((folder / f"{side}.py").read_text().splitlines() for side in ("slow", "fixed"))
    blocks = difflib.SequenceMatcher(a=slow, b=fixed, autojunk=False).get_opcodes()
    return tuple(n + 1 for kind, _, _, start, stop in blocks if kind != "equal" for n in range(start, stop))


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {"reason": "not run"}


def summary(rows: list[dict[str, Any]]) -> str:
    defects = [row for row in rows if row["kind"] != "control" and row["matters_on"] != "gpu"]
    found = sum(row["found"] == "yes" for row in defects)
    false = sum(bool(row["false_alarms"]) for row in rows)
    return (
        f"found {found} of {len(defects)} that matter on a CPU; false alarms on {false} of {len(rows)} healthy scripts"
    )


def _priced(finding: dict[str, Any]) -> dict[str, Any]:
    return {
        "finding": finding["practice"], "where": finding["where"]["line"] if finding.get("where") else "",
        "likely": _rounded(finding["likely"]), "worth": _rounded(finding["worth"]),
    }  # fmt: skip


def _names(findings: list[dict[str, Any]]) -> str:
    return " ".join(
        f"{one['practice']}{':' + str(one['where']['line']) if one.get('where') else ''}={one['likely']:.2f}"
        for one in findings
    )


def _explained(said: dict[str, Any]) -> float | str:
    ledger = said.get("ledger")
    return _rounded(1 - ledger["unexplained_ms"] / ledger["step_ms"]) if ledger else ""


def _rounded(value: float | None) -> float | str:
    return float(f"{value:.4g}") if value is not None else ""


if __name__ == "__main__":
    main()
