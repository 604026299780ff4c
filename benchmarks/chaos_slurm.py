"""Random faults in jobs that train on a real Slurm: what became of each, and what it cost.

The jobs train ``examples/preemptible.py``, or a script for one process that vivace splits over ranks.

    python benchmarks/chaos_slurm.py [--faults 220] [--jobs 8] [--seed 1] [--minutes 40]

Needs a Slurm (``tests/launch/install_slurm.sh``) and root, for nodes with names of their own and for small disks that
can be full. Writes ``results/chaos_slurm.csv``, a row a fault. ``tests/launch/chaos`` has the faults and the laws; a
row in which the benchmark itself ran out of patience says "gave up waiting", and counts neither way.
"""

from __future__ import annotations

import argparse
import queue
import random
import re
import signal
import subprocess
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

from launch.chaos.faults import FAULTS, NO_REQUEUE, PREEMPTIBLE, faults_for  # noqa: E402
from launch.chaos.site import Site, chaos_site  # noqa: E402
from launch.chaos.strike import Fault  # noqa: E402
from launch.chaos.training import STEPS, Launcher, Shape, Training  # noqa: E402
from launch.chaos.trial import Hit, Plan, Reference, plan_of, run_trial  # noqa: E402
from launch.chaos.waiting import wait  # noqa: E402
from launch.slurm_cluster import FINAL  # noqa: E402
from rows import Clock, Table, hardware, say  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "chaos_slurm.csv"
FIELDS = (
    "seed", "trial", "job", "launcher", "ranks", "options", "fault", "at_step", "saved_step", "outcome", "slurm_state",
    "steps_lost", "alone", "seconds", "verdict", "slurm", "hardware", "torch",
)  # fmt: skip
SHAPES = {  # and how often each is drawn: a start costs seconds of a core for each rank
    Shape(Launcher.PLAIN, 1): 5, Shape(Launcher.TORCHRUN, 1): 3, Shape(Launcher.TORCHRUN, 2): 3,
    Shape(Launcher.TORCHRUN, 4): 2, Shape(Launcher.SRUN, 1): 5, Shape(Launcher.SRUN, 2): 3, Shape(Launcher.SRUN, 4): 2,
    Shape(Launcher.NODES, 2): 1, Shape(Launcher.NODES, 4): 1, Shape(Launcher.SPLIT, 2): 2, Shape(Launcher.SPLIT, 4): 2,
}  # fmt: skip
NODES = 7  # the last one for jobs that are preempted


def random_plan(number: int, site: Site, asked: argparse.Namespace) -> Plan:
    """A job of a random shape with four to eight faults. Some are tried again after a crash, some are not."""
    dice = random.Random(f"{asked.seed}-{number}")
    shapes = shapes_of(asked)
    possible: list[Fault] = []
    while not possible:
        (shape,) = dice.choices(list(shapes), list(shapes.values()))
        possible = [fault for fault in faults_for(shape.launcher, site.real_disks) if re.search(asked.only, fault.name)]
    faults = _drawn(dice, possible, dice.randint(4, 8))
    options = ["--time=30:00"]
    if not any(NO_REQUEUE in fault.options for fault in faults):
        options += ["--max-requeues=60", *(["--retry-crash=60"] if dice.random() < 0.7 else [])]
    preemptible = any(PREEMPTIBLE in fault.options for fault in faults)
    last = f"node{NODES}"
    options.append(f"--sbatch=--nodelist={last}" if preemptible else f"--exclude={last}")
    return plan_of(f"t{number:03}", shape, faults, dice.randrange(2**31), options)


def _drawn(dice: random.Random, possible: list[Fault], count: int) -> list[Fault]:
    """A job without requeueing takes one fault only, one with slow steps two; the options of its faults go together."""
    faults = dice.choices(possible, [fault.weight for fault in possible], k=count)
    alone = [fault for fault in faults if NO_REQUEUE in fault.options]
    slow = [fault for fault in faults if fault.slow]
    return alone[:1] or (slow[:2] if slow else faults)


def reference_of(shape: Shape) -> Shape:
    """How the ranks of the example are started makes no difference."""
    return shape if shape.launcher is Launcher.SPLIT else Shape(Launcher.SRUN, shape.ranks)


def shapes_of(asked: argparse.Namespace) -> dict[Shape, int]:
    return {shape: weight for shape, weight in SHAPES.items() if asked.launcher in shape.launcher.value}


def references(site: Site, shapes: Iterable[Shape]) -> dict[Shape, Reference]:
    """Undisturbed trainings, one after the other."""
    found = {}
    for shape in dict.fromkeys(map(reference_of, shapes)):
        training = Training(site.bench(0), "reference", shape, step_s=0.0)
        training.send()
        wait(f"the reference of {shape}", lambda job=training.job: site.state(job) in FINAL)  # type: ignore[misc]
        state = training.saved()
        assert state is not None, training.log("stderr")
        assert state["step"] == STEPS, training.log("stderr")
        found[shape] = Reference(training.losses(), state["model"])
    say(f"{len(found)} references")
    return found


class Crew:
    """Some trials at a time, each with a disk of its own, until enough faults have come or the time is over."""

    def __init__(self, site: Site, table: Table, asked: argparse.Namespace) -> None:
        self.site, self.table, self.asked = site, table, asked
        self.references = references(site, shapes_of(asked))
        self.clock = Clock(asked.minutes)
        self.numbers = iter(range(10**6))
        self.hits: queue.Queue[Hit] = queue.Queue()
        self.count = 0
        self.lock = threading.Lock()

    def work(self, disk: int) -> None:
        while self.count < self.asked.faults and self.clock.left_s() > 0:
            with self.lock:
                plan = random_plan(next(self.numbers), self.site, self.asked)
            try:
                for hit in run_trial(self.site, disk, plan, self.references[reference_of(plan.shape)]):
                    self._write(hit)
            except Exception as error:  # one trial must not take the others with it
                traceback.print_exc()
                self._write(Hit(plan, "none", gave_up=f"gave up: {type(error).__name__}: {error}".splitlines()[0]))

    def _write(self, hit: Hit) -> None:
        with self.lock:
            self.count += not hit.gave_up
            self.hits.put(hit)
            self.table.add(
                seed=self.asked.seed,
                trial=hit.plan.name,
                job=hit.job,
                launcher=hit.plan.shape.launcher.value,
                ranks=hit.plan.shape.ranks,
                options=" ".join(option for option in hit.plan.options if "retry" in option or option == NO_REQUEUE),
                fault=hit.fault,
                at_step=hit.step,
                saved_step=hit.saved_step,
                outcome=hit.outcome,
                slurm_state=hit.state,
                steps_lost=hit.steps_lost,
                alone=hit.alone,
                seconds=round(hit.seconds, 1),
                verdict=hit.verdict,
            )
            if hit.broken and self.asked.keep:
                keep = Path(self.asked.keep) / f"{hit.plan.name}-{hit.job}"
                subprocess.run(["cp", "-r", str(self.site.disks[0].parent), str(keep)], check=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=220)
    parser.add_argument("--jobs", type=int, default=8, choices=range(3, 100), metavar="N", help="Trials at a time.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=40.0, help="No new trial begins after that.")
    parser.add_argument("--only", default="", help="Faults whose name matches this regular expression.")
    parser.add_argument("--launcher", default="", help="Launchers whose name holds this.")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--keep", default="", help="Folder for the files of trials that break a law.")
    parser.add_argument("--list", action="store_true", help="Print the faults.")
    asked = parser.parse_args()
    if asked.list:
        for fault in FAULTS:
            print(f"{fault.name}: {fault.expect.value}")
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the cluster ends with us
    with chaos_site(asked.jobs, NODES) as site:
        version = site.cluster.run("slurmd", "-V").stdout.split()[-1]
        crew = Crew(site, Table(asked.output, FIELDS, {"slurm": version, **hardware("cpu")}), asked)
        threads = [threading.Thread(target=crew.work, args=(disk,), daemon=True) for disk in range(asked.jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    verdicts = Counter("gave up" if hit.gave_up else "broken" if hit.broken else "holds" for hit in crew.hits.queue)
    say(f"{sum(verdicts.values())} faults in {crew.clock.elapsed_s() / 60:.0f} min: {dict(verdicts)}")
    sys.exit(1 if verdicts["broken"] else 0)


if __name__ == "__main__":
    main()
