"""What can go wrong with a job: each fault is a context manager, in which it lasts."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from launch.chaos.processes import Role
from launch.chaos.strike import Expect, Fault, Happening, Missed, Strike
from launch.chaos.training import Launcher
from launch.chaos.waiting import wait

__all__ = ["FAULTS", "NO_REQUEUE", "PREEMPTIBLE", "faults_for"]

FAULTS: list[Fault] = []
WITH_TORCHRUN = frozenset({Launcher.TORCHRUN})
WITH_SRUN = frozenset(Launcher) - {Launcher.PLAIN}
SRUN_RANKS = WITH_SRUN - WITH_TORCHRUN
WITH_VIVACE = frozenset({Launcher.SPLIT})
ONE_NODE = frozenset(Launcher) - {Launcher.NODES}
PREEMPTIBLE, NO_REQUEUE = "--partition=preempt", "--no-requeue"


def _add(name: str, expect: Expect, happens: Happening, **more: object) -> None:
    FAULTS.append(Fault(name, expect, happens, **more))  # type: ignore[arg-type]


def _signal(role: Role, number: signal.Signals) -> Happening:
    @contextmanager
    def happens(strike: Strike) -> Iterator[None]:
        if role is Role.SCRIPT:
            strike.one(Role.RANK)  # else its trap may not be there yet
        elif number is signal.SIGTERM:
            strike.await_listening()
        strike.kill(role, number)
        yield

    return happens


def _pause(role: Role) -> Happening:
    @contextmanager
    def happens(strike: Strike) -> Iterator[None]:
        process = strike.one(role)
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGSTOP)
        try:
            strike.hold()
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGCONT)

    return happens


def _step_signal(name: str) -> Happening:
    @contextmanager
    def happens(strike: Strike) -> Iterator[None]:
        strike.one(Role.RANK)
        if name == "TERM":
            strike.await_listening()
        strike.slurm("scancel", f"--signal={name}", strike.job)
        yield

    return happens


SIGNAL, EXPECT = signal.Signals, Expect
for _number in (SIGNAL.SIGUSR1, SIGNAL.SIGUSR2, SIGNAL.SIGTERM):
    _add(f"{_number.name} to a rank", EXPECT.SAVES, _signal(Role.RANK, _number))
for _number in (SIGNAL.SIGKILL, SIGNAL.SIGSEGV, SIGNAL.SIGINT, SIGNAL.SIGHUP):
    _add(f"{_number.name} to a rank", EXPECT.CRASHES, _signal(Role.RANK, _number))
for _name, _launchers in (("USR1", WITH_SRUN), ("USR2", WITH_SRUN), ("TERM", SRUN_RANKS)):
    # Without srun there is no step but the batch script's, which such a signal does not reach.
    _add(f"SIG{_name} to all processes of the step", EXPECT.SAVES, _step_signal(_name), launchers=_launchers)
_add("SIGTERM to torchrun and its ranks", EXPECT.TERMINATES, _step_signal("TERM"), launchers=WITH_TORCHRUN)
_add("SIGUSR1 to torchrun", EXPECT.UNTOUCHED, _signal(Role.TORCHRUN, SIGNAL.SIGUSR1), launchers=WITH_TORCHRUN)
_add("SIGTERM to torchrun", EXPECT.TERMINATES, _signal(Role.TORCHRUN, SIGNAL.SIGTERM), launchers=WITH_TORCHRUN)
for _number in (SIGNAL.SIGKILL, SIGNAL.SIGINT, SIGNAL.SIGHUP):
    _add(f"{_number.name} to torchrun", EXPECT.CRASHES, _signal(Role.TORCHRUN, _number), launchers=WITH_TORCHRUN)
_add("SIGUSR1 to srun", EXPECT.SAVES, _signal(Role.SRUN, SIGNAL.SIGUSR1), launchers=SRUN_RANKS)
_add("SIGTERM to vivace run", EXPECT.SAVES, _signal(Role.RUN, SIGNAL.SIGTERM), launchers=WITH_VIVACE)
_add("SIGUSR1 to vivace run", EXPECT.SAVES, _signal(Role.RUN, SIGNAL.SIGUSR1), launchers=WITH_VIVACE)
_add("SIGKILL to vivace run", EXPECT.CRASHES, _signal(Role.RUN, SIGNAL.SIGKILL), launchers=WITH_VIVACE)
_add("SIGTERM to srun", EXPECT.ANY, _signal(Role.SRUN, SIGNAL.SIGTERM), launchers=WITH_SRUN)
_add("SIGKILL to srun", EXPECT.CRASHES, _signal(Role.SRUN, SIGNAL.SIGKILL), launchers=WITH_SRUN)
_add("SIGUSR1 to the batch script", EXPECT.SAVES, _signal(Role.SCRIPT, SIGNAL.SIGUSR1), weight=4)
for _number in (SIGNAL.SIGTERM, SIGNAL.SIGHUP, SIGNAL.SIGINT):
    _add(f"{_number.name} to the batch script", EXPECT.SAVES, _signal(Role.SCRIPT, _number))
_add("SIGKILL to the batch script", EXPECT.ANY, _signal(Role.SCRIPT, SIGNAL.SIGKILL), weight=1)
_add("a rank stopped and continued", EXPECT.UNTOUCHED, _pause(Role.RANK))
_add("torchrun stopped and continued", EXPECT.UNTOUCHED, _pause(Role.TORCHRUN), launchers=WITH_TORCHRUN)
_add("srun stopped and continued", EXPECT.UNTOUCHED, _pause(Role.SRUN), launchers=WITH_SRUN)
_add("the batch script stopped and continued", EXPECT.UNTOUCHED, _pause(Role.SCRIPT))


@contextmanager
def _two_warnings(strike: Strike) -> Iterator[None]:
    strike.warn()
    strike.hold(0, 2)
    with contextlib.suppress(Missed):
        strike.kill(Role.SCRIPT, signal.SIGUSR1)
    yield


@contextmanager
def _suspended(strike: Strike) -> Iterator[None]:
    strike.one(Role.RANK)
    strike.slurm("scontrol", "suspend", strike.job)
    try:
        strike.hold()
        yield
    finally:
        strike.site.scontrol("resume", strike.job)


@contextmanager
def _warned_while_suspended(strike: Strike) -> Iterator[None]:
    with _suspended(strike):
        with contextlib.suppress(Missed):
            strike.kill(Role.SCRIPT, signal.SIGUSR1)
        yield


@contextmanager
def _stopped_by_scancel(strike: Strike) -> Iterator[None]:
    strike.one(Role.RANK)
    strike.slurm("scancel", "--signal=STOP", strike.job)
    try:
        strike.hold()
        yield
    finally:
        strike.site.cluster.run("scancel", "--signal=CONT", strike.job, check=False)


@contextmanager
def _requeued_by_hand(strike: Strike) -> Iterator[None]:
    strike.slurm("scontrol", "requeue", strike.job)
    yield


_add("two warnings", EXPECT.SAVES, _two_warnings)
_add("suspended and resumed", EXPECT.UNTOUCHED, _suspended, weight=5)
_add("warned while suspended, then resumed", EXPECT.SAVES, _warned_while_suspended, weight=3)
_add("stopped and continued by scancel", EXPECT.UNTOUCHED, _stopped_by_scancel, launchers=WITH_SRUN)
_add("scontrol requeue by an administrator", EXPECT.REQUEUED, _requeued_by_hand)


def _controller_away(how: signal.Signals, warned: bool) -> Happening:
    @contextmanager
    def happens(strike: Strike) -> Iterator[None]:
        site = strike.site
        with site.event(strike.training.name):
            if warned:
                strike.one(Role.RANK)
            if how is signal.SIGKILL:
                away: AbstractContextManager[None] = site.cluster.controller_down(how)
            else:
                away = _stopped(site.cluster.daemons["slurmctld"].pid)
            with away:
                if warned:
                    with contextlib.suppress(Missed):
                        strike.kill(Role.SCRIPT, signal.SIGUSR1)
                strike.hold(3, 15)
                yield
            site.wait_controller()

    return happens


@contextmanager
def _stopped(process: int) -> Iterator[None]:
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)


for _how in (SIGNAL.SIGSTOP, SIGNAL.SIGKILL):
    _word = "stopped" if _how is SIGNAL.SIGSTOP else "killed"
    _add(f"the controller {_word} for a while", EXPECT.UNTOUCHED, _controller_away(_how, False), silences=True)
    _add(
        f"the controller {_word} for a while, and a warning",
        EXPECT.SAVES,
        _controller_away(_how, True),
        weight=3,
        silences=True,
    )


@contextmanager
def _dead_node(strike: Strike) -> Iterator[None]:
    site = strike.site
    with site.event(strike.training.name):
        number = strike.node()
        site.cluster.kill_node(number)
        try:
            yield
            wait("a dead node to be noticed", lambda: "DOWN" in site.node_state(number))
        finally:
            site.cluster.start_node(number)
        wait("the node to be back", lambda: "DOWN" not in site.node_state(number))


@contextmanager
def _slurmd_restarted(strike: Strike) -> Iterator[None]:
    site = strike.site
    with site.event(strike.training.name):
        number = strike.node()
        daemon = site.cluster.daemons.pop(f"slurmd{number}")
        daemon.kill()
        daemon.wait()
        try:
            strike.hold(0, 3)
            yield
        finally:
            site.cluster.start_node(number)
        wait("the node to be back", lambda: "DOWN" not in site.node_state(number))


def _node_set(state: str, warned: bool) -> Happening:
    @contextmanager
    def happens(strike: Strike) -> Iterator[None]:
        site = strike.site
        with site.event(strike.training.name):
            number = strike.node()
            node = f"NodeName=node{number}"
            strike.slurm("scontrol", "update", node, f"State={state}", "Reason=chaos")
            try:
                if warned:
                    with contextlib.suppress(Missed):
                        strike.warn()
                strike.hold(1, 4)
                yield
            finally:
                site.scontrol("update", node, "State=RESUME")

    return happens


_add("a node dies and comes back", EXPECT.REQUEUED, _dead_node, weight=4)
_add("slurmd killed and started again", EXPECT.UNTOUCHED, _slurmd_restarted)
_add("a node drained", EXPECT.UNTOUCHED, _node_set("DRAIN", False))
_add("a node drained, and a warning", EXPECT.SAVES, _node_set("DRAIN", True))
_add("a node set down", EXPECT.REQUEUED, _node_set("DOWN", False))


def _full_disk(warned: bool) -> Happening:
    @contextmanager
    def happens(strike: Strike) -> Iterator[None]:
        if warned:
            strike.one(Role.RANK)
        filler = strike.training.bench.folder / "filler"
        _fill(filler)
        try:
            if warned:
                with contextlib.suppress(Missed):
                    strike.kill(Role.SCRIPT, signal.SIGUSR1)
            strike.hold(2, 6)
            yield
        finally:
            filler.unlink()

    return happens


def _fill(file: Path) -> None:
    with contextlib.suppress(OSError), file.open("wb", buffering=0) as handle:
        for size in (2**20, 4096, 1):
            with contextlib.suppress(OSError):
                while handle.write(b"x" * size):
                    pass


_add("the disk is full", EXPECT.CRASHES, _full_disk(False), needs_disk=True, weight=4)
_add("the disk is full, and a warning", EXPECT.ANY, _full_disk(True), needs_disk=True, weight=4)


@contextmanager
def _preempted(strike: Strike) -> Iterator[None]:
    """A job with more rights wants the node."""
    node = f"node{strike.node()}"
    with strike.site.event(strike.training.name):
        words = ("sbatch", "--parsable", "--partition=gpu_p13", "--exclusive", f"--nodelist={node}", "--time=1")
        other = strike.site.cluster.run(*words, "--output=/dev/null", "--wrap=sleep 1", check=False).stdout.strip()
        yield
        wait("the other job to end", lambda: strike.site.state(other) in ("COMPLETED", "FAILED", "CANCELLED", ""))


@contextmanager
def _time_limit(strike: Strike) -> Iterator[None]:
    """Slurm looks at its clock every 30 s; a warning 45 s before the end leaves 15 s at least."""
    facts = strike.site.facts(strike.job)
    ran_s = _seconds(facts.get("RunTime", "0:0:0"))
    strike.one(Role.RANK)
    limit = f"TimeLimit={(ran_s + 60) // 60}"
    strike.slurm("scontrol", "update", f"JobId={strike.job}", limit)
    began = strike.site.facts(strike.job).get("StartTime")
    yield

    def over() -> bool:
        now = strike.site.facts(strike.job)
        return now.get("StartTime", began) != began or now.get("JobState", "RUNNING") not in ("RUNNING", "COMPLETING")

    wait("the time limit", over)
    strike.site.scontrol("update", f"JobId={strike.job}", "TimeLimit=30")


def _seconds(text: str) -> int:
    days, _, clock = text.rpartition("-")
    total = 0
    for part in clock.split(":"):
        total = 60 * total + int(part)
    return total + 86400 * int(days or 0)


_add("preempted", EXPECT.REQUEUED, _preempted, options=(PREEMPTIBLE,), launchers=ONE_NODE, weight=3, slow=True)
_add("time limit", EXPECT.SAVES, _time_limit, options=("--signal-lead=45",), weight=3, slow=True)
_add("time limit without a warning", EXPECT.ANY, _time_limit, options=(NO_REQUEUE,), weight=2, slow=True)


def faults_for(launcher: Launcher, disk: bool) -> list[Fault]:
    return [fault for fault in FAULTS if launcher in fault.launchers and (disk or not fault.needs_disk)]
