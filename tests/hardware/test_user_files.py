"""GPUs and clusters of the user's own: on top of ours, and refused with a clear sentence when damaged."""

from __future__ import annotations

import os

import pytest

from vivace.errors import UserError
from vivace.hardware.catalogue import find_cluster, find_gpu, load_catalogue

GPU = '[gpu.mine]\nname = "Mine"\npatterns = ["NVIDIA Mine*"]\nsources = ["me"]\n'
CLUSTER = '[cluster.lab]\nname = "Lab"\ngpu = "mine"\ngpus_per_node = 2\nsources = ["me"]\n'


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """A folder that ``$VIVACE_CATALOGUE`` names, and no configuration folder."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    chosen = tmp_path / "catalogue"
    chosen.mkdir()
    monkeypatch.setenv("VIVACE_CATALOGUE", str(chosen))
    return chosen


def refused(folder, text):
    path = folder / "bad.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as caught:
        load_catalogue()
    assert str(path) in caught.value.message
    return caught.value


def test_a_user_adds_a_gpu_and_a_cluster(folder):
    (folder / "lab.toml").write_text(CLUSTER + GPU + "dense_peak_tflops = { bf16 = 7 }\n")
    assert find_gpu("NVIDIA Mine 24GB").dense_peak_tflops == {"bf16": 7.0}
    assert find_gpu("NVIDIA Mine 24GB").defined_in == str(folder / "lab.toml")
    assert find_cluster("LAB").gpus_per_node == 2
    assert find_gpu("NVIDIA H200").key == "h200-sxm"


def test_a_users_entry_replaces_ours_as_a_whole(folder):
    (folder / "own.toml").write_text(
        '[gpu.h200-sxm]\nname = "Slow H200"\npatterns = ["NVIDIA H200"]\ntdp_w = 500\nsources = ["me"]\n'
    )
    spec = find_gpu("NVIDIA H200")
    assert (spec.name, spec.tdp_w, spec.sm_count) == ("Slow H200", 500, None)


def test_a_users_pattern_wins_over_ours(folder):
    (folder / "own.toml").write_text('[gpu.hopper]\nname = "Any"\npatterns = ["NVIDIA H*"]\nsources = ["me"]\n')
    assert find_gpu("NVIDIA H200").key == "hopper"
    assert find_gpu("NVIDIA B200").key == "b200-sxm"


def test_the_configuration_folder_is_read_and_the_variable_beats_it(folder, tmp_path):
    configuration = tmp_path / "config" / "vivace"
    configuration.mkdir(parents=True)
    (configuration / "a.toml").write_text(GPU + "sm_count = 1\n")
    assert find_gpu("mine").sm_count == 1
    (folder / "b.toml").write_text(GPU + "sm_count = 2\n")
    assert find_gpu("mine").sm_count == 2


def test_the_variable_lists_files_and_folders_first_one_strongest(folder, tmp_path, monkeypatch):
    (folder / "b.toml").write_text(GPU + "sm_count = 2\n")
    (tmp_path / "first.toml").write_text(GPU + "sm_count = 3\n")
    monkeypatch.setenv("VIVACE_CATALOGUE", os.pathsep.join([str(tmp_path / "first.toml"), "", str(folder)]))
    assert find_gpu("mine").sm_count == 3


def test_a_site_of_ones_own_brings_limits_and_storage(folder):
    (folder / "site.toml").write_text(
        GPU
        + CLUSTER
        + 'site = "here"\nqos = ["short"]\n'
        + '[site.here]\nname = "Here"\nsources = ["me"]\n'
        + '[[site.here.qos]]\nname = "short"\nmax_hours = 1.5\n[[site.here.qos]]\nname = "long"\n'
        + '[[site.here.storage]]\nvariable = "FAST"\nadvice = "data"\n'
    )
    lab = find_cluster("lab")
    assert [(qos.name, qos.max_hours) for qos in lab.qos_specs] == [("short", 1.5)]
    assert [space.variable for space in lab.storage] == ["FAST"]


def test_a_newline_cannot_reach_a_job_script(folder):
    (folder / "lab.toml").write_text(GPU + CLUSTER + 'partition = "gpu\\ntouch pwned"\n')
    with pytest.raises(UserError, match=r"\[cluster.lab\]: partition: must be one line of printable text"):
        load_catalogue()


def test_a_path_that_is_not_there(folder, monkeypatch):
    monkeypatch.setenv("VIVACE_CATALOGUE", str(folder / "none.toml"))
    with pytest.raises(UserError, match=r"none\.toml, which does not exist"):
        load_catalogue()


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ("sm_conut = 80", "[gpu.mine]: sm_conut: unknown key", "did you mean sm_count?"),
        ("xyzzy = 80", "[gpu.mine]: xyzzy: unknown key", "known keys: name, sources, patterns"),
        ('key = "x"', "[gpu.mine]: key: unknown key", None),
        ("defined_in = 'vivace'", "[gpu.mine]: defined_in: unknown key", None),
        ('sm_count = "80"', "[gpu.mine]: sm_count: must be a whole number, not '80'", "sm_count = 8"),
        ("sm_count = 80.5", "[gpu.mine]: sm_count: must be a whole number, not 80.5", None),
        ("sm_count = true", "[gpu.mine]: sm_count: must be a whole number, not true", None),
        (
            "tdp_w = -300",
            "[gpu.mine]: tdp_w: must be above zero, not -300",
            "leave tdp_w out when it is not known",
        ),
        ("tdp_w = 0", "[gpu.mine]: tdp_w: must be above zero, not 0", None),
        ("tdp_w = nan", "[gpu.mine]: tdp_w: must be above zero, not nan", None),
        ("tdp_w = inf", "[gpu.mine]: tdp_w: must be above zero, not inf", None),
        ("tdp_w = [300]", "[gpu.mine]: tdp_w: must be a number, not a list", None),
        ("architecture = 9", "[gpu.mine]: architecture: must be text in quotes, not 9", None),
        ('architecture = ""', "[gpu.mine]: architecture: is empty", None),
        ('aliases = "m"', "[gpu.mine]: aliases: must be a list, not 'm'", None),
        ("aliases = [1]", "[gpu.mine]: aliases[0]: must be text in quotes, not 1", None),
        ("dense_peak_tflops = 9", "[gpu.mine]: dense_peak_tflops: must be a table, not 9", None),
        (
            "dense_peak_tflops = { bf16 = -9 }",
            "[gpu.mine]: dense_peak_tflops.bf16: must be above zero, not -9",
            None,
        ),
        (
            "dense_peak_tflops = { bf17 = 9 }",
            "dense_peak_tflops.bf17: unknown number format",
            "did you mean bf16",
        ),
    ],
)
def test_a_wrong_value_is_refused_with_file_entry_and_key(folder, line, message, hint):
    error = refused(folder, GPU + line + "\n")
    assert message in error.message
    assert hint is None or error.hint.startswith(hint)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("[gpu.mine", "is not valid TOML", "toml.io"),
        ("[gpus.mine]\n", "gpus: unknown key", "did you mean gpu?"),
        ("gpu = 3\n", "gpu: must hold tables", "[gpu.NAME]"),
        ('[gpu]\nname = "x"\n', "[gpu]: name: must be a table", "[gpu.NAME]"),
        ('[gpu."My GPU"]\n', "[gpu.My GPU]: the name: may hold", None),
        ('[gpu.mine]\nname = "Mine"\n', "[gpu.mine]: sources: is missing", 'add sources = ["…"]'),
        (CLUSTER, "[cluster.lab]: gpu: no GPU is called 'mine'", None),
        (GPU + CLUSTER + 'site = "jean-zai"\n', "site: no site is called 'jean-zai'", "jean-zay"),
        (GPU + CLUSTER + 'qos = ["x"]\n', "qos: names limits of a site", "site"),
        (GPU + CLUSTER + 'site = "jean-zay"\nqos = ["qos_gpu-t9"]\n', "has no QoS 'qos_gpu-t9'", "qos_gpu-t"),
        (
            '[site.s]\nname = "S"\nsources = ["me"]\n[[site.s.qos]]\nname = "q"\nmax_hour = 1\n',
            "[site.s.qos[0]]: max_hour: unknown key",
            "did you mean max_hours",
        ),
        (
            '[site.s]\nname = "S"\nsources = ["me"]\nqos = [3]\n',
            "[site.s]: qos[0]: must be a table, not 3",
            None,
        ),
    ],
)
def test_a_damaged_file_is_refused(folder, text, message, hint):
    error = refused(folder, text)
    assert message in error.message
    assert hint is None or hint in error.hint


def test_a_file_that_is_not_text_is_refused(folder):
    (folder / "bad.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match=r"bad\.toml cannot be read"):
        load_catalogue()
