"""A Slurm with accounts and QoS (slurmdbd, MariaDB): what a site refuses, and what its accounts remember."""

from __future__ import annotations

import json
import sys
from typing import Any

from launch.conftest import Bench

# What the catalogue of such a site would hold.
SITE = """
[site.bench]
name = "Bench"
sources = ["tests"]
[[site.bench.qos]]
name = "qos_gpu-dev"
max_hours = 2
[[site.bench.qos]]
name = "qos_gpu-t3"
max_hours = 20
[[site.bench.qos]]
name = "qos_gpu-t4"
max_hours = 100
[cluster.accounts]
name = "With accounts"
site = "bench"
gpu = "v100-sxm2-32gb"
gpus_per_node = 4
cores_per_gpu = 2
account_suffix = "v100"
qos = ["qos_gpu-dev", "qos_gpu-t3", "qos_gpu-t4"]
sources = ["tests"]
"""

FAILS = (sys.executable, "-c", "raise SystemExit(4)")


def send(bench: Bench, *words: str, command: tuple[str, ...] = ("true",)):
    with (bench.folder / "catalogue.toml").open("a") as file:
        file.write(SITE if "site.bench" not in (bench.folder / "catalogue.toml").read_text() else "")
    return bench.vivace("submit", "--cluster", "accounts", *words, "--", *command)


def test_wrong_account_qos_and_limits_are_said_before_the_queue_does(bench_with_accounts: Bench):
    bench = bench_with_accounts
    cases = [
        (["--account", "other"], "Invalid account or account/partition combination specified"),
        (["--account", "abc", "--qos", "nope"], "Invalid qos specification"),
        (["--account", "abc@a100"], "the account abc@a100 cannot be used on accounts hint: --account abc@v100"),
        (
            ["--account", "abc", "--time", "50h", "--gpus", "8"],
            "would never start: it asks for 8 GPUs, and the QoS qos_gpu-t4 allows 4",
        ),
        (["--account", "abc", "--time", "200h"], "no QoS of accounts takes 1 GPUs for 200:00:00"),
        (["--account", "abc", "--qos", "normal", "--time", "30h"], "the partition gpu_p13 allows 20:00:00"),
    ]
    for options, sentence in cases:
        done = send(bench, *options)
        text = " ".join(done.stderr.split())
        assert done.returncode == 2, (options, done.stdout, text)
        assert sentence in text
        assert "hint:" in text
        assert "Traceback" not in text


def test_the_job_runs_in_the_chosen_qos_and_sacct_remembers_how_it_ended(bench_with_accounts: Bench):
    bench = bench_with_accounts
    done = send(bench, "--account", "abc", "--time", "3h", "--json", command=FAILS)
    (record,) = json.loads(done.stdout)
    assert record["qos"] == "qos_gpu-t3"
    assert bench.end(record) == "FAILED"
    assert "Account=abc@v100 QOS=qos_gpu-t3" in bench.cluster.show(record["job_id"])

    from vivace.launch.status import SACCT_FIELDS, from_sacct

    words = ("sacct", "-X", "-P", "-n", "-j", record["job_id"], "-o", SACCT_FIELDS)

    def remembered() -> tuple[object, ...]:
        (job,) = from_sacct(bench.cluster.run(*words).stdout)
        return job.state, job.exit_code, job.signal, job.limit_s

    # The database's rows fill in over a second or two.
    bench.cluster.wait("sacct", lambda: remembered() == ("FAILED", 4, None, 3 * 3600))
    say_what_a_meter_would_say(bench, record["job_id"], joules=7_200_000)
    bench.cluster.wait("energy", lambda: shown(bench, record)["energy_j"] == 7_200_000)


def shown(bench: Bench, record: dict[str, Any]) -> dict[str, Any]:
    return json.loads(bench.vivace("status", record["job_id"], "--json").stdout)


def say_what_a_meter_would_say(bench: Bench, job: str, joules: int) -> None:
    """No machine of the test has one: the joules are written where slurmdbd would write them (3 is energy)."""
    sql = f"update vivace_job_table set tres_alloc = concat(tres_alloc, ',3={joules}') where id_job = {job}"
    socket = f"{bench.cluster.root}/run/mysql.sock"
    bench.cluster.run("mariadb", "--no-defaults", "-S", socket, "-u", bench.cluster.user, "slurm_acct_db", "-e", sql)


def test_status_asks_sacct_when_the_controller_has_forgotten(bench_with_accounts: Bench, monkeypatch):
    from vivace.launch import status

    bench = bench_with_accounts
    done = send(bench, "--account", "abc", "--name", "a|b", "--json", command=FAILS)
    (record,) = json.loads(done.stdout)
    bench.end(record)
    for name, value in bench.env.items():
        monkeypatch.setenv(name, value)
    asked = status.ask

    def forgetful(program: str, *words: str, **more: float) -> status.Answer:
        if program == "scontrol":
            return status.Answer(1, "", "slurm_load_jobs error: Invalid job id specified")
        return asked(program, *words, **more)

    monkeypatch.setattr(status, "ask", forgetful)

    def remembered() -> tuple[object, ...] | None:
        info = status.ask_slurm(record["job_id"])
        return info and (info.name, info.state, info.exit_code)

    bench.cluster.wait("sacct", lambda: remembered() == ("a|b", "FAILED", 4))
