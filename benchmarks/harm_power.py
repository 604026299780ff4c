"""Does the harm test see planted harms, and stay silent where there is none? Real processes.

    python benchmarks/harm_power.py                    # CPU: under an hour on a free core
    python benchmarks/harm_power.py --quick --jobs cnn gpt --minutes 4    # one seed, a few harms: for a GPU

Four small jobs (``harm_jobs/job.py``) over several seeds: unchanged and once more (A/A), with every practice that
applies, and with every planted harm, alone in fp32 and beside bf16. Each row tells how often the verdict was harm:

- ``one_pair``: over one pair of runs, with one more baseline for the seed band;
- ``three_pairs``: over three, as the rounds of a tune;
- ``as_tune``: three pairs and, beside bf16, the look that a tune adds: the set without what rounds coarsely.

Rows of the kind "long look" tell what 300 steps of one pair show (``says``): the losses of their second half.

A harm alone in fp32 is judged as a practice that only rounds otherwise. What ran before (``--runs``) is not run again.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forked_runs import forked
from rows import Clock, Table, hardware, say

from vivace.records.measurement import Measurement
from vivace.records.proof import Harm, HarmOutcome, HarmVerdict
from vivace.records.trial import Outcome
from vivace.tune.harm import Claims, HarmLook, claims_of, judge
from vivace.tune.trials import TrialSettings, run_trial

JOB = Path(__file__).parent / "harm_jobs" / "job.py"
FIELDS = (
    "job", "change", "beside", "kind", "runs", "one_pair", "three_pairs", "as_tune", "by", "says", "hardware", "torch",
)  # fmt: skip
JOBS = ("cnn", "gpt", "lstm", "accumulate")
PRACTICES = (
    "bf16", "fp16", "pure_bf16", "tf32", "channels_last", "foreach_optimizer", "fused_optimizer", "threads=2", "onednn",
    "workers=1", "workers=1+persistent_workers", "workers=1+prefetch=4", "pin_memory", "non_blocking", "gpu_prefetch",
    "workers=1+batch_memory", "cudnn_benchmark", "attention", "checkpointing", "debug_off", "compile",
    "bf16+channels_last+fused_optimizer", "bf16+compile",
)  # fmt: skip
EVERY_JOB = ("loss_x1.01", "gradient_x1.01", "lr_x1.1", "update_x1.1", "labels_2%", "frozen", "bf16_weights")
HARMS = {
    "cnn": (*EVERY_JOB, "dropout_lost", "norm_mode"),
    "gpt": (*EVERY_JOB, "dropout_lost", "clip_lost"),
    "lstm": EVERY_JOB,
    "accumulate": (*EVERY_JOB, "clip_lost", "accumulation"),
}
QUICK_HARMS = ("loss_x1.01", "update_x1.1", "labels_2%", "dropout_lost")
TINY_LR = {"cnn": "1e-5", "gpt": "1e-6", "lstm": "1e-6", "accumulate": "1e-5"}  # for bf16_weights
LONG = ("fused_optimizer", "bf16", "pure_bf16")
LONG_STEPS = 300
COMPILED_SEEDS = 2  # compiling takes long, and the processes are not forked
STEPS, WARMUP = 20, 14


@dataclass(frozen=True)
class Cell:
    """One change of one job."""

    job: str
    words: tuple[str, ...] = ()
    planted: str = ""
    lr: str | None = None

    @property
    def kind(self) -> str:
        return "harm" if self.planted else "healthy" if self.words else "A/A"

    @property
    def compiles(self) -> bool:
        return "compile" in self.words


def cells(job: str, quick: bool) -> Iterator[Cell]:
    yield Cell(job)
    for practice in PRACTICES:
        yield Cell(job, tuple(practice.split("+")))
    for harm in HARMS[job]:
        if quick and harm not in QUICK_HARMS:
            continue
        lr = TINY_LR[job] if harm == "bf16_weights" else None
        if lr is not None:
            yield Cell(job, ("bf16",), lr=lr)
        yield Cell(job, (), harm, lr)
        yield Cell(job, ("bf16",), harm, lr)


class Runs:
    """Measurements by cell and seed, run when they are first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.known: dict[str, Measurement | None] = {}

    def get(
        self, cell: Cell, seed: int, again: bool = False, same_draws: bool = False, steps: int = STEPS
    ) -> Measurement | None:
        """None where a practice does not apply here, or the job does not run with it."""
        name = "-".join((cell.job, str(seed), "+".join(cell.words) or "plain", cell.planted or "healthy"))
        name += (f"-lr{cell.lr}" if cell.lr else "") + "-again" * again + "-same_draws" * same_draws
        name += f"-{steps}" * (steps != STEPS)
        if name not in self.known:
            self.known[name] = self._run(cell, seed, self.folder / name, same_draws, steps)
        return self.known[name]

    def _run(self, cell: Cell, seed: int, folder: Path, same_draws: bool, steps: int) -> Measurement | None:
        command = (sys.executable, str(JOB), cell.job, *(("--lr", cell.lr) if cell.lr else ()))
        settings = TrialSettings(steps, WARMUP, seed_offset=seed, grad_norms=True, same_draws=same_draws, timeout_s=300)
        os.environ["PLANTED"] = cell.planted
        if cell.compiles:
            trial = run_trial(command, cell.words, folder, settings, lambda *_: None, lambda _: None)
        else:
            with forked():
                trial = run_trial(command, cell.words, folder, settings, lambda *_: None, lambda _: None)
        m = trial.measurement
        if trial.outcome is not Outcome.OK or m is None:
            say(f"{folder.name}: {trial.outcome}: {trial.message[-200:]}")
            return None
        if cell.compiles and not m.origin.flags["compiled"]:
            return None  # torch finds nothing to compile in a plain nn.Sequential of its own layers
        return m if all(m.practices[word].applied for word in cell.words) else None


def _device() -> dict[str, str]:
    """Asked in another process: one that has started CUDA itself cannot be forked any more."""
    code = "import torch; print(torch.cuda.get_device_name() if torch.cuda.is_available() else '')"
    name = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip()
    return {**hardware("cpu"), **({"hardware": name} if name else {})}


def judged(cell: Cell, runs: Runs, seeds: Sequence[int], look: bool) -> Harm | None:
    pairs = []
    for seed in seeds:
        before = runs.get(Cell(cell.job, lr=cell.lr), seed)
        after = runs.get(cell, seed, again=cell.kind == "A/A")
        if before is None or after is None:
            return None
        pairs.append((before, after))
    claims = Claims() if cell.planted and not cell.words else claims_of(cell.words, pairs[0][0])
    again = runs.get(Cell(cell.job, lr=cell.lr), seeds[0], again=True)
    other = runs.get(Cell(cell.job, lr=cell.lr), seeds[-1] + 1) if len(seeds) == 1 else None
    assert again is not None
    looks = list(_looks(cell, runs, seeds[0])) if look else []
    return judge(pairs, (pairs[0][0], again), claims, [other] if other is not None else [], looks=looks)


def _looks(cell: Cell, runs: Runs, seed: int) -> Iterator[HarmLook]:
    """The runs that a tune adds: the set in fp32, and compiled code with the script's own dropout masks."""
    before = runs.get(Cell(cell.job, lr=cell.lr), seed)
    fine = tuple(word for word in cell.words if word == "compile")
    wanted = cell.compiles or (cell.planted and cell.words)
    after = runs.get(Cell(cell.job, fine, cell.planted, cell.lr), seed, same_draws=cell.compiles) if wanted else None
    if before is not None and after is not None:
        yield HarmLook((before, after), fine or (cell.planted,), claims_of(fine, before) if fine else Claims())


def row(cell: Cell, runs: Runs, seeds: Sequence[int]) -> dict[str, Any] | None:
    """None where the change does not apply."""
    seeds = seeds[:COMPILED_SEEDS] if cell.compiles else seeds
    single = [judged(cell, runs, [seed], look=cell.compiles) for seed in seeds[:-1] or seeds]
    triples = list(itertools.combinations(seeds, min(3, len(seeds))))
    three = [judged(cell, runs, triple, look=cell.compiles) for triple in triples]
    tuned = [judged(cell, runs, triple, look=True) for triple in triples]
    if None in single or None in three or None in tuned:
        return None
    by = Counter(_test(harm) for harm in single if harm and _is_harm(harm))
    says = next((harm.says for harm in (*single, *tuned) if harm and (_is_harm(harm) or cell.kind != "harm")), "")
    return {
        "job": cell.job, "change": cell.planted or "+".join(cell.words) or "unchanged",
        "beside": "+".join(cell.words) if cell.planted and cell.words else "fp32" + (f", lr {cell.lr}" * bool(cell.lr)),
        "kind": cell.kind, "runs": len(seeds), "one_pair": _share(single), "three_pairs": _share(three),
        "as_tune": _share(tuned), "by": ", ".join(f"{name} {n}" for name, n in by.most_common()), "says": says[:120],
    }  # fmt: skip


def long_row(cell: Cell, runs: Runs, seed: int) -> dict[str, Any] | None:
    before = runs.get(Cell(cell.job), seed, steps=LONG_STEPS)
    after = runs.get(cell, seed, steps=LONG_STEPS)
    if before is None or after is None:
        return None
    claims = claims_of(cell.words, before)
    harm = judge([(before, after)], None, claims, looks=[HarmLook((before, after), cell.words, claims, long=True)])
    test = harm.tests[-1]
    return {
        "job": cell.job, "change": "+".join(cell.words), "beside": "fp32", "kind": "long look", "runs": 1,
        "as_tune": f"{int(test.outcome is HarmOutcome.FAILED)}/1", "by": test.kind.value, "says": test.says,
    }  # fmt: skip


def _is_harm(harm: Harm | None) -> bool:
    return harm is not None and harm.verdict is HarmVerdict.OUTSIDE


def _test(harm: Harm) -> str:
    return next((test.kind.value for test in harm.tests if test.outcome is HarmOutcome.FAILED), "not finite")


def _share(verdicts: Sequence[Harm | None]) -> str:
    return f"{sum(map(_is_harm, verdicts))}/{len(verdicts)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--jobs", nargs="*", default=JOBS)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--runs", type=Path, default=Path("runs/harm_power"))
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "harm_power.csv")
    args = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    seeds = range(1, 1 + (1 if args.quick else args.seeds))
    clock = Clock(args.minutes)
    runs, rows = Runs(args.runs), []
    args.output.unlink(missing_ok=True)  # the table is of one version of the test; what it judges is kept
    table = Table(args.output, FIELDS, _device())
    for job in args.jobs:
        for cell in cells(job, args.quick):
            if clock.left_s() <= 0:
                say("the time is over: what was not run is not in the table")
                break
            if (found := row(cell, runs, seeds)) is not None:
                table.add(**found)
                rows.append(found)
        for word in () if args.quick else LONG:
            if (found := long_row(Cell(job, (word,)), runs, seeds[0])) is not None:
                table.add(**found)
    for kind in ("A/A", "healthy", "harm"):
        for figure in ("one_pair", "three_pairs", "as_tune"):
            pairs = [str(r[figure]).split("/") for r in rows if r["kind"] == kind]
            harms, of = sum(int(a) for a, _ in pairs), sum(int(b) for _, b in pairs)
            say(f"{kind} {figure}: harm in {harms} of {of}")


if __name__ == "__main__":
    main()
