"""``vivace hardware`` as a user runs it: a process, its output and its exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from vivace.records.machine import Machine


@pytest.fixture
def run(tmp_path):
    def command(*arguments, **variables):
        environment = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path), "COLUMNS": "100", **variables}
        if "VIVACE_CATALOGUE" not in variables:
            environment.pop("VIVACE_CATALOGUE", None)
        return subprocess.run(
            [sys.executable, "-m", "vivace", "hardware", *arguments],
            capture_output=True,
            text=True,
            env=environment,
            timeout=600,
        )

    return command


def test_a_person_reads_this_machine(run):
    done = run()
    assert done.returncode == 0, done.stderr
    for label in ("system", "CPU", "cores", "memory", "torch", "GPU"):
        assert label in done.stdout
    assert " usable of " in done.stdout


def test_json_is_a_machine_record_and_nothing_else(run):
    done = run("--json")
    assert done.returncode == 0, done.stderr
    assert Machine.from_json(done.stdout).kind == "machine"


def test_the_gpus_of_the_catalogue(run):
    text = run("--gpus").stdout
    assert "h200-sxm" in text
    assert "989.4" in text
    assert json.loads(run("--gpus", "--json").stdout)["gpus"]["a100-sxm4-80gb"]["sm_count"] == 108


def test_one_gpu_with_its_units_peaks_and_memory(run):
    a100 = json.loads(run("--gpu", "A100", "--json").stdout)
    assert (a100["dense_peak_tflops"]["int1"], a100["sparse_peak_tflops"]["int4"]) == (4992, 2496)
    assert "fp8" not in a100["generation"]["tensor_core_formats"]
    assert (a100["l2_mb"], a100["generation"]["l1_shared_kib"]) == (40, 192)
    h100 = run("--gpu", "H100").stdout
    for figure in ("132", "16,896", "528", "3957.8", "256 KiB per SM", "228 KiB per SM", "50 MB", "3350"):
        assert figure in h100
    v100 = run("--gpu", "V100").stdout
    assert "5,120" in v100
    assert "640" in v100  # the product, not the full die (5,376 and 672)


def test_an_unknown_gpu_is_refused(run):
    done = run("--gpu", "H1000x")
    assert done.returncode != 0
    assert "no GPU is called" in done.stderr


def test_the_clusters_of_the_catalogue(run):
    assert "jean-zay-h100" in run("--clusters").stdout
    content = json.loads(run("--clusters", "--gpus", "--json").stdout)
    assert set(content) == {"gpus", "clusters"}
    assert content["clusters"]["jean-zay-a100"]["inter_node_gbits_per_s_per_gpu"] == 50
    names = [qos["name"] for qos in content["clusters"]["jean-zay-h100"]["site_spec"]["qos"]]
    assert "qos_gpu_h100-t3" in names


def test_a_site_as_tables(run):
    rows = [line.split() for line in run("--cluster", "jean-zay", COLUMNS="200").stdout.splitlines()]
    assert ["jean-zay-h100", "gpu_p6", "364", "4", "h100-sxm5-80gb", "24", "4.88", "117", "…@h100"] in rows
    assert ["qos_gpu_h100-dev", "2", "32", "32", "32", "384", "10", "h100"] in rows
    assert ["$WORK", "5,000", "500,000", "project", "no", "350", "300"] in [row[:7] for row in rows]
    (cluster,) = json.loads(run("--cluster", "jean-zay-a100", "--json").stdout)
    assert cluster["partition"] == "gpu_p5"


def test_a_users_gpu_is_listed_and_a_damaged_file_fails(run, tmp_path):
    own = tmp_path / "own.toml"
    own.write_text('[gpu.mine]\nname = "Mine"\nsources = ["me"]\n')
    assert "mine" in json.loads(run("--gpus", "--json", VIVACE_CATALOGUE=str(own)).stdout)["gpus"]
    own.write_text("[gpu.mine]\nnam = 3\n")
    done = run("--gpus", VIVACE_CATALOGUE=str(own))
    assert done.returncode != 0
    assert "nam: unknown key" in done.stderr


def test_help_has_examples(run):
    text = run("--help").stdout
    assert "vivace hardware --json" in text
    assert "--clusters" in text


def test_the_occupancy_of_a_kernel(run):
    found = json.loads(run("occupancy", "--gpu", "A100", "--registers", "64", "--json").stdout)
    assert (found["blocks"], found["warps"], found["occupancy"], found["limits"]) == (4, 32, 0.5, ["registers"])
    shown = run("occupancy", "--gpu", "H100", "--threads", "128", "--shared-kib", "48").stdout
    assert "4 blocks of 4 warps on each SM: 16 of 64 warps, occupancy 25.0%" in shown
    assert "shared memory       4  ← limits" in shown
    refused = run("occupancy", "--gpu", "A100", "--threads", "2000")
    assert refused.returncode != 0
    assert "a block has 1 to 1024 threads, not 2000" in refused.stderr


def test_tiles_and_waves_of_a_product(run):
    """The course's: 108 tiles fill an A100 once, nine more make a second wave."""
    one = json.loads(run("tiles", "2304", "1536", "4096", "--gpu", "A100", "--json").stdout)
    assert one["tilings"][0] == {
        "tile": [256, 128], "tiles": 108, "waves": 1, "tile_efficiency": 1.0, "wave_efficiency": 1.0, "both": 1.0
    }  # fmt: skip
    two = run("tiles", "2304", "1664", "4096", "--gpu", "A100").stdout
    assert "256x128    117      2        100.0%     54.2%  54.2%" in two
    thin = json.loads(run("tiles", "8192", "128", "8192", "--gpu", "V100", "--dtype", "fp16", "--json").stdout)
    assert round(thin["flops_per_byte"], 2) == 124.12
    assert round(thin["gpu_flops_per_byte"], 1) == 138.9
    assert thin["limited_by"] == "memory"
