"""A real, throw-away Slurm on loopback: munged, slurmctld, two emulated nodes with fake GPUs, accounting on demand.

Everything lives in one short folder (a UNIX socket's path is limited to 108 bytes) on free ports, as children of this
process; ``stop`` ends them by their own ids. Settings that are not obvious have their reason beside them.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

SBIN = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
FINAL = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "DEADLINE", "BOOT_FAIL"}
DEVICES = ("null", "zero", "full", "random")  # fake GPUs must be character devices, or CUDA_VISIBLE_DEVICES stays empty


def missing_programs(*names: str) -> list[str]:
    return [name for name in names if shutil.which(name, path=SBIN) is None]


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


class SlurmCluster:
    """Use as a context manager. ``run`` starts a program that talks to it."""

    def __init__(
        self,
        nodes: int = 2,
        cpus: int = 16,
        gpus: int = 4,
        accounting: bool = False,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="vsl-", dir="/tmp"))
        self.nodes, self.cpus, self.gpus, self.accounting = nodes, cpus, gpus, accounting
        self.settings = {"KillWait": 5, "SlurmdTimeout": 10, "GraceTime": 5, **(settings or {})}
        self.user = pwd.getpwuid(os.geteuid()).pw_name
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}
        # A daemon ends with the thread that started it: one that lives as long as the cluster does.
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="starter")
        self.namespaces = os.geteuid() == 0 and self._can_unshare()

    @property
    def names_resolve(self) -> bool:
        try:
            return self.namespaces or bool(socket.gethostbyname("node1"))
        except OSError:
            return False

    # -- what tests use ----------------------------------------------------------------------------------------------

    @property
    def env(self) -> dict[str, str]:
        """The caller's environment without another Slurm's or another job's variables."""
        foreign = ("SLURM", "SBATCH", "SRUN", "VIVACE_", "MASTER_")
        keep = {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
        for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
            keep.pop(name, None)
        return {
            **keep,
            "PATH": SBIN,
            "SLURM_CONF": str(self.root / "etc/slurm.conf"),
            "MYSQL_UNIX_PORT": str(self.root / "run/mysql.sock"),  # slurmdbd.conf has no option for a socket
            "OMP_NUM_THREADS": "1",
        }

    def run(self, *words: str, check: bool = True, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(words, env=self.env, text=True, capture_output=True, timeout=600, cwd=cwd)
        assert not check or done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def show(self, job: str) -> str:
        return self.run("scontrol", "--oneliner", "show", "job", job).stdout

    def state(self, job: str) -> str:
        return self.show(job).split("JobState=")[1].split()[0]

    def wait_state(self, job: str, states: set[str], timeout_s: float = 600) -> str:
        self.wait(f"job {job} in {states}", lambda: self.state(job) in states, timeout_s)
        return self.state(job)

    def wait(self, what: str, happened: Callable[[], object], timeout_s: float = 600) -> None:
        until = time.monotonic() + timeout_s
        while time.monotonic() < until:
            self._check_daemons()
            try:
                if happened():
                    return
            except (subprocess.SubprocessError, OSError, AssertionError, IndexError):
                pass
            time.sleep(0.2)  # each look is a process of Slurm's, and work for its controller
        raise TimeoutError(f"waited {timeout_s} s for: {what}\n{self.run('squeue', check=False).stdout}")

    def step_processes(self, job: str, node: int | None = None) -> list[int]:
        """Ids of the processes that belong to the ranks of a job (not to its batch script)."""
        found = []
        for folder in Path("/proc").iterdir():
            if not folder.name.isdigit():
                continue
            try:
                words = (folder / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            here = f"SLURM_CONF={self.root}/etc/slurm.conf".encode() in words
            mine = f"SLURM_JOB_ID={job}".encode() in words and any(w.startswith(b"SLURM_PROCID=") for w in words)
            batch = b"SLURM_STEP_ID=4294967291" in words or not any(w.startswith(b"SLURM_STEP_ID=") for w in words)
            there = node is None or f"SLURMD_NODENAME=node{node}".encode() in words
            if here and mine and not batch and there:
                found.append(int(folder.name))
        return sorted(found)

    # -- life --------------------------------------------------------------------------------------------------------

    def __enter__(self) -> SlurmCluster:
        for again in (True, True, False):
            try:
                self._start()
                break
            except RuntimeError:  # a daemon ended: someone else may have taken a port that was free
                self.stop()
                if not again:
                    raise
                self.root, self.daemons = Path(tempfile.mkdtemp(prefix="vsl-", dir="/tmp")), {}
            except BaseException:
                self.stop()
                raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        controller = self.daemons.get("slurmctld")
        if controller is not None and controller.poll() is None:
            for how in ([], ["--signal=KILL"]):
                self.run("scancel", "--full", *how, "-u", self.user, check=False)
            until = time.monotonic() + 15
            while time.monotonic() < until and self.run("squeue", "-h", check=False).stdout.strip():
                time.sleep(0.1)
        order = ["slurmd", "slurmctld", "slurmdbd", "mariadbd", "munged"]
        for name in sorted(self.daemons, key=lambda name: order.index(name.rstrip("0123456789"))):
            self._end(self.daemons[name])
        shutil.rmtree(self.root, ignore_errors=True)

    @staticmethod
    def _end(process: subprocess.Popen[bytes]) -> None:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start(self) -> None:
        self._write_files()
        root = self.root
        self._spawn(
            "munged",
            *("munged", "--foreground", f"--key-file={root}/munge/munge.key", f"--socket={root}/sock/munge.sock"),
            *(f"--pid-file={root}/munge/munged.pid", f"--log-file={root}/munge/munged.log"),
            *(f"--seed-file={root}/munge/seed", "--num-threads=4"),
        )
        self.wait("munge", lambda: self.run("munge", "-n", "-S", f"{root}/sock/munge.sock"))
        if self.accounting:
            self._start_accounting()
        self._spawn("slurmctld", "slurmctld", "-D", "-i")  # -i: there is no saved state yet
        self.wait("slurmctld", lambda: "is UP" in self.run("scontrol", "ping").stdout)
        if self.accounting:  # the database knows GPUs only since the controller told it
            words = ("sacctmgr", "-i", "modify", "qos", "qos_gpu-t4", "set", "MaxTRES=gres/gpu=4")
            self.wait("a limit on GPUs", lambda: self.run(*words))
        for number in range(1, self.nodes + 1):
            self.start_node(number)
        self.wait("idle nodes", lambda: len(self._idle_nodes()) == self.nodes)

    def _idle_nodes(self) -> set[str]:
        return set(self.run("sinfo", "-h", "-N", "-t", "idle", "-o", "%N").stdout.split())

    def start_node(self, number: int) -> None:
        words = ["slurmd", "-D", "-N", f"node{number}"]
        if self.namespaces:  # so that `hostname` says node1 and node1 can be resolved, as on a real cluster
            script = f'mount --bind {self.root}/etc/hosts /etc/hosts && hostname node{number} && exec "$@"'
            words = ["unshare", "--mount", "--uts", "--propagation", "slave", "sh", "-c", script, "sh", *words]
        self._spawn(f"slurmd{number}", *words)

    @contextmanager
    def controller_down(self, how: signal.Signals = signal.SIGTERM) -> Iterator[None]:
        """slurmctld is ended, and started again with the state that it saved."""
        controller = self.daemons.pop("slurmctld")
        controller.send_signal(how)
        controller.wait()
        try:
            yield
        finally:
            self._spawn("slurmctld", "slurmctld", "-D")
            self.wait("slurmctld", lambda: "is UP" in self.run("scontrol", "ping").stdout)

    def kill_node(self, number: int) -> None:
        """The node vanishes: slurmd first, then slurmstepd (alive, it would call the job FAILED), then the tasks."""
        daemon = self.daemons.pop(f"slurmd{number}")
        daemon.kill()
        daemon.wait()
        steps, tasks = set(), set()
        for folder in Path("/proc").iterdir():
            try:
                words = (folder / "environ").read_bytes().split(b"\0") if folder.name.isdigit() else []
                if (
                    f"SLURM_CONF={self.root}/etc/slurm.conf".encode() not in words
                    or f"SLURMD_NODENAME=node{number}".encode() not in words
                ):
                    continue
                tasks.add(int(folder.name))
                parent = (folder / "stat").read_text().rsplit(")", 1)[1].split()[1]
                if Path(f"/proc/{parent}/comm").read_text().startswith("slurmstepd"):
                    steps.add(int(parent))
            except OSError:
                continue
        for pid in [*steps, *tasks]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def _spawn(self, name: str, *words: str) -> None:
        if shutil.which("setpriv"):  # they end with this process, even when it is killed
            words = ("setpriv", "--pdeathsig", "KILL", *words)
        with (self.root / f"log/{name}.out").open("ab") as log:
            self.daemons[name] = self._starter.submit(
                lambda: subprocess.Popen(
                    words, env=self.env, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
                )
            ).result()

    def _check_daemons(self) -> None:
        for name, process in list(self.daemons.items()):
            if process.poll() is not None:
                log = (self.root / f"log/{name}.out").read_text(errors="replace")[-2000:]
                raise RuntimeError(f"{name} ended with {process.returncode}:\n{log}")

    @staticmethod
    def _can_unshare() -> bool:
        words = ["unshare", "--mount", "--uts", "--propagation", "slave", "true"]
        return subprocess.run(words, capture_output=True).returncode == 0

    def _start_accounting(self) -> None:
        root = self.root
        self.run(
            *(
                "mariadb-install-db",
                "--no-defaults",
                f"--user={self.user}",
                f"--datadir={root}/mysql",
                "--skip-test-db",
            ),
            *("--skip-name-resolve", "--auth-root-authentication-method=socket"),
            f"--auth-root-socket-user={self.user}",
        )
        self._spawn(
            "mariadbd",
            *("mariadbd", "--no-defaults", f"--user={self.user}", f"--datadir={root}/mysql"),
            *(f"--socket={root}/run/mysql.sock", "--skip-networking", f"--pid-file={root}/run/mysqld.pid"),
            *("--innodb-buffer-pool-size=64M", "--innodb-lock-wait-timeout=900"),
        )
        sql = ["mariadb", "--no-defaults", "-S", f"{root}/run/mysql.sock", f"-u{self.user}"]
        self.wait("mariadb", lambda: self.run(*sql, "-e", "create database if not exists slurm_acct_db"))
        self._spawn("slurmdbd", "slurmdbd", "-D")
        self.wait("slurmdbd", lambda: self.run("sacctmgr", "-n", "show", "cluster"))
        limits = {"qos_gpu-minute": 1, "qos_gpu-dev": 2 * 60, "qos_gpu-t3": 20 * 60, "qos_gpu-t4": 100 * 60}
        manage = ["sacctmgr", "-i"]
        self.run(*manage, "add", "cluster", "vivace")
        for name, minutes in limits.items():
            self.run(*manage, "add", "qos", name)
            self.run(*manage, "modify", "qos", name, "set", f"MaxWall={minutes}")
        self.run(*manage, "add", "account", "abc@v100", "cluster=vivace")
        allowed = f"qos=normal,{','.join(limits)}"
        self.run(*manage, "add", "user", self.user, "account=abc@v100", allowed, check=False)
        self.run(*manage, "modify", "user", self.user, "set", allowed, check=False)

    # -- files -------------------------------------------------------------------------------------------------------

    def _write_files(self) -> None:
        root = self.root
        for name in ("etc", "munge", "sock", "state", "log", "spool", "run"):
            (root / name).mkdir()
        root.chmod(0o755)
        (root / "munge").chmod(0o700)
        (root / "sock").chmod(0o755)
        (root / "munge/munge.key").write_bytes(os.urandom(1024))
        (root / "munge/munge.key").chmod(0o400)
        self.ports = _free_ports(2 + self.nodes)  # controller, database, nodes
        for number in range(1, self.nodes + 1):
            (root / f"spool/node{number}").mkdir()
        hosts = "".join(f"127.0.1.{number} node{number}\n" for number in range(1, self.nodes + 1))
        (root / "etc/hosts").write_text(f"127.0.0.1 localhost {socket.gethostname()}\n{hosts}")
        (root / "etc/slurm.conf").write_text(self._slurm_conf())
        devices = ",".join(f"/dev/{name}" for name in DEVICES[: self.gpus])
        nodes = f"node[1-{self.nodes}]"
        (root / "etc/gres.conf").write_text(f"AutoDetect=off\nNodeName={nodes} Name=gpu Type=v100 File={devices}\n")
        version = self.run("slurmd", "-V").stdout.split()[-1].split(".")
        if (int(version[0]), int(version[1])) >= (23, 11):  # newer ones want cgroups unless told
            (root / "etc/cgroup.conf").write_text("CgroupPlugin=disabled\n")
        if self.accounting:
            (root / "etc/slurmdbd.conf").write_text(self._slurmdbd_conf())
            (root / "etc/slurmdbd.conf").chmod(0o600)

    def _slurm_conf(self) -> str:
        root = self.root
        # cred_expire: a requeued job waits that long (120 s by default); 5 is the smallest legal value.
        # config_overrides: a machine with 2 cores may call itself a node of 16.
        # FirstJobId: the ranks' port follows from the job's number, and two test workers share this machine.
        # DefMemPerCPU: without it one job takes the whole memory of its nodes.
        head = f"""ClusterName=vivace
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={self.ports[0]}
AuthType=auth/munge
AuthInfo=socket={root}/sock/munge.sock,cred_expire=5
CredType=cred/munge
FirstJobId={1000 + os.getpid() % 199 * 100}
SlurmUser={self.user}
SlurmdUser={self.user}
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool/%n
SlurmctldPidFile={root}/run/slurmctld.pid
SlurmdPidFile={root}/run/slurmd.%n.pid
SlurmctldLogFile={root}/log/slurmctld.log
SlurmdLogFile={root}/log/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MailProg=/bin/true
MpiDefault=none
JobAcctGatherType=jobacct_gather/{"linux" if self.accounting else "none"}
JobAcctGatherFrequency=5
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=100
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1,sched_min_interval=100000,batch_sched_delay=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
GresTypes=gpu
ReturnToService=2
KillWait={self.settings["KillWait"]}
MinJobAge=600
SlurmctldTimeout=10
SlurmdTimeout={self.settings["SlurmdTimeout"]}
JobRequeue=1
SlurmdParameters=config_overrides
"""
        return head + "\n".join([*self._accounting_lines(), *self._node_lines(), *self._partition_lines()]) + "\n"

    def _accounting_lines(self) -> list[str]:
        if not self.accounting:
            return ["AccountingStorageType=accounting_storage/none"]
        return [
            "AccountingStorageType=accounting_storage/slurmdbd",
            "AccountingStorageHost=localhost",
            f"AccountingStoragePort={self.ports[1]}",
            f"AccountingStoragePass={self.root}/sock/munge.sock",
            "AccountingStorageEnforce=associations,limits,qos",  # else a wrong account or QoS is accepted
            "AccountingStorageTRES=gres/gpu",
        ]

    def _node_lines(self) -> list[str]:
        return [
            f"NodeName=node{number} NodeHostname=localhost "
            f"NodeAddr={f'127.0.1.{number}' if self.namespaces else '127.0.0.1'} Port={self.ports[1 + number]} "
            f"CPUs={self.cpus} Boards=1 SocketsPerBoard=1 CoresPerSocket={self.cpus} ThreadsPerCore=1 "
            f"RealMemory=16000 Gres=gpu:v100:{self.gpus} Feature=v100-32g State=UNKNOWN"
            for number in range(1, self.nodes + 1)
        ]

    def _partition_lines(self) -> list[str]:
        common = f"Nodes=node[1-{self.nodes}] MaxTime=20:00:00 DefaultTime=00:10:00 State=UP"
        return [
            f"PartitionName=gpu_p13 {common} Default=YES PriorityTier=10",
            f"PartitionName=preempt {common} PriorityTier=1 GraceTime={self.settings['GraceTime']} PreemptMode=REQUEUE",
        ]

    def _slurmdbd_conf(self) -> str:
        return f"""AuthType=auth/munge
AuthInfo=socket={self.root}/sock/munge.sock
DbdHost=localhost
DbdPort={self.ports[1]}
SlurmUser={self.user}
LogFile={self.root}/log/slurmdbd.log
PidFile={self.root}/run/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser={self.user}
StorageLoc=slurm_acct_db
"""
