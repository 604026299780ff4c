"""The catalogue's own data, against figures worked by hand or published elsewhere."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields

import pytest

from vivace.errors import UserError
from vivace.hardware.catalogue import find_cluster, find_gpu, load_catalogue, named_gpu
from vivace.hardware.specs import ClusterSpec, GpuSpec, achievable_tflops, as_table, peak_tflops


@pytest.fixture(autouse=True)
def _no_user_files(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("VIVACE_CATALOGUE", raising=False)


@pytest.mark.parametrize(
    ("reported", "key"),
    [
        ("Tesla V100-SXM2-16GB", "v100-sxm2-16gb"),
        ("Tesla V100-SXM2-32GB", "v100-sxm2-32gb"),
        ("NVIDIA A100-SXM4-40GB", "a100-sxm4-40gb"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"),
        ("A100-SXM4-80GB", "a100-sxm4-80gb"),
        ("NVIDIA A100-SXM-64GB", "a100-custom-64gb"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm5-80gb"),
        ("NVIDIA H200", "h200-sxm"),
        ("NVIDIA GH200 480GB", "gh200-96gb"),
        ("NVIDIA GH200 144G HBM3e", "gh200-141gb"),
        ("NVIDIA B200", "b200-sxm"),
        ("NVIDIA GB200", "gb200"),
        ("h200-sxm", "h200-sxm"),
        ("H200", "h200-sxm"),
    ],
)
def test_names_that_drivers_report_are_found(reported, key):
    spec = find_gpu(reported)
    assert spec is not None
    assert spec.key == key


@pytest.mark.parametrize(
    "other",
    [
        "NVIDIA H200 NVL",
        "NVIDIA H100 PCIe",
        "NVIDIA H100 NVL",
        "NVIDIA A100-PCIE-40GB",
        "NVIDIA A100 80GB PCIe",
        "NVIDIA A100-SXM4-80GB MIG 1g.10gb",
        "NVIDIA H200 MIG 1g.18gb",
        "Quadro P6000",
        "",
    ],
)
def test_a_like_name_of_another_product_or_of_a_slice_is_not_taken_for_it(other):
    assert find_gpu(other) is None


# NVIDIA data sheets and architecture white papers: products, not full dies (84, 128 and 144 SM).
@pytest.mark.parametrize(
    ("key", "sm_count", "bf16", "fp16", "bandwidth"),
    [
        ("v100-sxm2-16gb", 80, None, 125, 900),
        ("v100-sxm2-32gb", 80, None, 125, 900),
        ("a100-sxm4-40gb", 108, 312, 312, 1555),
        ("a100-sxm4-80gb", 108, 312, 312, 2039),
        ("h100-sxm5-80gb", 132, 989.4, 989.4, 3350),
        ("h200-sxm", 132, 989.4, 989.4, 4800),
        ("b200-sxm", 148, 2250, 2250, 8000),
    ],
)
def test_products_have_their_data_sheet_figures(key, sm_count, bf16, fp16, bandwidth):
    spec = named_gpu(key)
    assert spec.sm_count == sm_count
    assert peak_tflops(spec, "bf16") == bf16
    assert peak_tflops(spec, "fp16") == fp16
    assert spec.memory_bandwidth_gbytes_per_s == bandwidth


def test_peaks_are_dense_ones():
    # Multiprocessors x fused multiply-adds a cycle x 2 x boost clock, from the architecture white papers.
    assert peak_tflops(named_gpu("a100-sxm4-80gb"), "fp16") == pytest.approx(108 * 1024 * 2 * 1.41e9 / 1e12, rel=1e-3)
    assert peak_tflops(named_gpu("h100"), "bf16") == pytest.approx(132 * 2048 * 2 * 1.83e9 / 1e12, rel=1e-3)
    assert peak_tflops(named_gpu("v100-sxm2-32gb"), "fp16") == pytest.approx(80 * 512 * 2 * 1.53e9 / 1e12, rel=5e-3)


def test_a_number_format_may_be_named_as_torch_does():
    torch = pytest.importorskip("torch")
    h200 = named_gpu("h200")
    assert peak_tflops(h200, torch.bfloat16) == peak_tflops(h200, "bf16") == 989.4
    assert peak_tflops(h200, torch.float32) == 66.9
    assert peak_tflops(h200, "tf32") == 494.7
    assert peak_tflops(h200, torch.float8_e4m3fn) == 1978.9
    assert peak_tflops(named_gpu("v100-sxm2-16gb"), torch.bfloat16) is None


def test_what_was_achieved_is_below_the_peak():
    measured = 0
    for spec in load_catalogue().gpus.values():
        for dtype in spec.achievable_tflops:
            measured += 1
            assert 0.7 * peak_tflops(spec, dtype) < achievable_tflops(spec, dtype) < peak_tflops(spec, dtype)
    assert measured == 12


def test_memory_per_core_of_jean_zay():
    cores_of_memory = {
        "jean-zay-v100-16g": (3.9, 39),
        "jean-zay-v100-32g": (3.9, 39),
        "jean-zay-a100": (7.3125, 58.5),
        "jean-zay-h100": (4.875, 117),
    }
    for name, (per_core, per_gpu) in cores_of_memory.items():
        assert find_cluster(name).usable_memory_gb_per_core == pytest.approx(per_core)
        assert find_cluster(name).usable_memory_gb_per_gpu == pytest.approx(per_gpu)


def test_totals_of_jean_zay():
    v100 = ["jean-zay-v100-16g", "jean-zay-v100-32g", "jean-zay-v100-8way"]
    assert [find_cluster(name).gpus_in_total for name in v100] == [126 * 4, 270 * 4, 31 * 8]
    assert sum(find_cluster(name).gpus_in_total for name in v100) == 1832
    assert find_cluster("jean-zay-a100").gpus_in_total == 416
    assert find_cluster("jean-zay-h100").gpus_in_total == 1456


@pytest.mark.parametrize(
    ("name", "gpus", "cores", "constraint", "account", "arch"),
    [
        ("jean-zay-v100-16g", 4, 10, "v100-16g", "v100", None),
        ("jean-zay-v100-32g", 4, 10, "v100-32g", "v100", None),
        ("jean-zay-v100-8way", 8, 3, None, "v100", None),
        ("jean-zay-a100", 8, 8, "a100", "a100", "arch/a100"),
        ("jean-zay-h100", 4, 24, "h100", "h100", "arch/h100"),
    ],
)
def test_what_a_jean_zay_job_must_ask_for(name, gpus, cores, constraint, account, arch):
    cluster = find_cluster(name)
    assert (cluster.gpus_per_node, cluster.cores_per_gpu) == (gpus, cores)
    assert (cluster.constraint, cluster.account_suffix) == (constraint, account)
    assert (cluster.modules[0] == arch) if arch else not any("arch/" in module for module in cluster.modules)
    assert cluster.needs_partition_flag == (constraint is None)


def test_qos_of_jean_zay():
    assert [qos.name for qos in find_cluster("jean-zay-v100-32g").qos_specs] == [
        "qos_gpu-dev",
        "qos_gpu-t3",
        "qos_gpu-t4",
    ]
    assert [qos.name for qos in find_cluster("jean-zay-a100").qos_specs] == [
        "qos_gpu_a100-dev",
        "qos_gpu_a100-t3",
    ]
    limits = {
        qos.name: (qos.max_hours, qos.max_gpus_per_job, qos.max_gpus_per_user)
        for qos in find_cluster("jean-zay-h100").qos_specs
    }
    assert limits == {
        "qos_gpu_h100-dev": (2, 32, 32),
        "qos_gpu_h100-t3": (20, 512, 512),
        "qos_gpu_h100-t4": (100, 16, 64),
    }


def test_each_jean_zay_partition_has_one_default_qos():
    for cluster in load_catalogue().clusters.values():
        if cluster.site == "jean-zay":
            assert [qos.name.endswith("-t3") for qos in cluster.qos_specs if qos.default] == [True]


def test_storage_of_jean_zay():
    storage = {space.variable: space for space in find_cluster("jean-zay-h100").storage}
    assert (storage["HOME"].quota_gb, storage["HOME"].quota_inodes) == (3, 150_000)
    assert (storage["WORK"].quota_gb, storage["WORK"].quota_scope) == (5_000, "project")
    assert storage["SCRATCH"].file_life_days == 30
    assert not storage["DSDIR"].writable


@pytest.mark.parametrize(
    ("name", "gbits", "gbytes"),
    [
        ("jean-zay-a100", 50, 6.25),
        ("jean-zay-h100", 400, 50),
        ("dgx-a100", 200, 25),
        ("oneflow-dlperf-v100", 12.5, 1.5625),
    ],
)
def test_network_per_gpu_in_bits_and_bytes(name, gbits, gbytes):
    assert find_cluster(name).inter_node_gbits_per_s_per_gpu == gbits
    assert find_cluster(name).inter_node_gbytes_per_s_per_gpu == gbytes


def test_per_node_and_per_gpu_figures_agree():
    for cluster in load_catalogue().clusters.values():
        if cluster.inter_node_gbits_per_s_per_node is not None:
            per_gpu = cluster.inter_node_gbits_per_s_per_node / cluster.gpus_per_node
            assert cluster.inter_node_gbits_per_s_per_gpu == per_gpu, cluster.key
        if cluster.cores_per_node is not None:
            assert cluster.cores_per_gpu == cluster.cores_per_node / cluster.gpus_per_node, cluster.key
        gpu = named_gpu(cluster.gpu)
        if cluster.intra_node_gbytes_per_s_per_gpu is not None:
            assert cluster.intra_node_gbytes_per_s_per_gpu == gpu.nvlink_gbytes_per_s, cluster.key


def test_every_entry_says_where_it_comes_from():
    catalogue = load_catalogue()
    for spec in [*catalogue.gpus.values(), *catalogue.clusters.values(), *catalogue.sites.values()]:
        assert spec.sources, spec.key
        assert spec.defined_in == "vivace"
    for cls, specs in ((GpuSpec, catalogue.gpus), (ClusterSpec, catalogue.clusters)):
        known = {item.name for item in fields(cls)}
        for spec in specs.values():
            assert set(spec.value_sources) <= known, spec.key
            assert all(getattr(spec, key) not in (None, (), {}) for key in spec.value_sources), spec.key


def test_inferred_idle_power_is_marked_so():
    idle = {spec.key: spec for spec in load_catalogue().gpus.values() if spec.idle_w is not None}
    assert idle["h100-sxm5-80gb"].idle_w == 55
    assert all(spec.value_sources["idle_w"].startswith("inferred") for spec in idle.values())


def test_clusters_name_gpus_of_the_catalogue():
    catalogue = load_catalogue()
    assert {"leonardo", "dgx-h200", "dgx-b200", "meta-grand-teton", "vtrain-a100"} <= set(catalogue.clusters)
    assert all(cluster.gpu in catalogue.gpus for cluster in catalogue.clusters.values())


def test_unknown_figures_are_absent_rather_than_guessed():
    leonardo = named_gpu("a100-custom-64gb")
    assert peak_tflops(leonardo, "bf16") is None
    assert "memory_bandwidth_gbytes_per_s" not in as_table(leonardo)
    assert find_cluster("jean-zay-v100-8way").inter_node_gbits_per_s_per_gpu is None


def test_a_mistyped_name_gets_the_nearest_ones():
    with pytest.raises(UserError, match="jean-zay-h10") as caught:
        find_cluster("jean-zay-h10")
    assert caught.value.hint.startswith("did you mean jean-zay-h100")
    with pytest.raises(UserError) as caught:
        named_gpu("a100-sxm4-80")
    assert "a100-sxm4-80gb" in caught.value.hint
    with pytest.raises(UserError) as caught:
        find_cluster("zzz")
    assert caught.value.hint == "vivace hardware --clusters lists all"


def test_the_catalogue_needs_the_standard_library_only():
    code = (
        "import sys; from vivace.hardware.catalogue import find_gpu; assert find_gpu('NVIDIA H200'); "
        "heavy = {'torch', 'pydantic', 'rich', 'typer', 'psutil', 'numpy', 'pynvml'}; "
        "print(*sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_sparse_peaks_are_twice_the_dense_ones():
    compared = 0
    for spec in load_catalogue().gpus.values():
        for dtype, sparse in spec.sparse_peak_tflops.items():
            compared += 1
            assert sparse == pytest.approx(2 * peak_tflops(spec, dtype), rel=1e-4)
    assert compared == 20
