"""Job scripts: the shape, the QoS, golden files for every Jean Zay partition, and what they share with the course's."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.errors import UserError
from vivace.launch import script as script_module
from vivace.launch.request import JobRequest
from vivace.launch.script import Place, prepare, render
from vivace.launch.shape import Shape, choose_qos, shape_of, split
from vivace.launch.target import Target, find_target, of_sinfo
from vivace.launch.words import seconds_of, slurm_time

GOLDEN = Path(__file__).parent / "golden"
PARTITIONS = ["v100-16g", "v100-32g", "v100-8way", "a100", "h100"]
PLACE = Place("runs/demo-001/job.sh", "runs/demo-001/%j.out", "runs/demo-001/%j.err", "/home/me/project")


def script_of(cluster: str, gpus: int, time: str = "5:00:00", **more: object) -> str:
    request = JobRequest(
        command=("python", "dlojz.py", "--batch-size", "128"),
        name="demo",
        gpus=gpus,
        seconds=seconds_of(time),
        account="xyz",
        **more,  # type: ignore[arg-type]
    )
    return render(prepare(request, find_target(cluster)), PLACE)


def options_of(text: str) -> dict[str, str]:
    lines = re.findall(r"^#SBATCH --([\w-]+)=?(.*)$", text, re.MULTILINE)
    return dict(lines)


@pytest.mark.parametrize("partition", PARTITIONS)
def test_golden_files_of_jean_zay(partition: str, monkeypatch: pytest.MonkeyPatch):
    """To renew them after a wanted change: VIVACE_GOLDEN=write pytest tests/launch/test_script.py"""
    monkeypatch.setattr(script_module, "__version__", "VERSION")
    target = find_target(f"jean-zay-{partition}")
    text = script_of(f"jean-zay-{partition}", 2 * target.gpus_per_node)
    file = GOLDEN / f"jean-zay-{partition}.sh"
    if os.environ.get("VIVACE_GOLDEN") == "write":
        file.write_text(text)
    assert text == file.read_text()
    assert subprocess.run(["bash", "-n", str(file)]).returncode == 0


# What the course's own templates ask for (source: DLO-JZ, day 1; H100: the site's table).
@pytest.mark.parametrize(
    ("cluster", "gpus", "time", "expected"),
    [
        (
            "jean-zay-a100",
            16,
            "01:00:00",
            {
                "nodes": "2",
                "gres": "gpu:8",
                "ntasks-per-node": "8",
                "cpus-per-task": "8",
                "hint": "nomultithread",
                "time": "01:00:00",
                "qos": "qos_gpu_a100-dev",
                "constraint": "a100",
                "account": "xyz@a100",
            },
        ),
        (
            "jean-zay-v100-32g",
            8,
            "01:00:00",
            {
                "nodes": "2",
                "gres": "gpu:4",
                "ntasks-per-node": "4",
                "cpus-per-task": "10",
                "hint": "nomultithread",
                "qos": "qos_gpu-dev",
                "account": "xyz@v100",
            },
        ),
        (
            "jean-zay-h100",
            8,
            "05:00:00",
            {
                "nodes": "2",
                "gres": "gpu:4",
                "ntasks-per-node": "4",
                "cpus-per-task": "24",
                "qos": "qos_gpu_h100-t3",
                "constraint": "h100",
                "account": "xyz@h100",
            },
        ),
        ("jean-zay-v100-8way", 8, "5:00:00", {"nodes": "1", "partition": "gpu_p2", "cpus-per-task": "3"}),
    ],
)
def test_what_the_courses_templates_ask_for(cluster: str, gpus: int, time: str, expected: dict[str, str]):
    options = options_of(script_of(cluster, gpus, time))
    assert {name: options.get(name) for name in expected} == expected


def test_the_course_loads_these_modules():
    assert "module load pytorch-gpu/py3/2.6.0" in script_of("jean-zay-a100", 8)
    assert "module load arch/h100" in script_of("jean-zay-h100", 4)


def test_more_than_a_node_must_be_whole_nodes_and_the_error_names_the_two_nearest():
    with pytest.raises(UserError) as caught:
        shape_of(find_target("jean-zay-a100"), 38)
    assert caught.value.hint == "ask for --gpus 32 or 40"
    assert shape_of(find_target("jean-zay-a100"), 3) == Shape(1, 3, 3, 8)
    assert shape_of(find_target("jean-zay-a100"), 16, gpus_per_task=4) == Shape(2, 2, 8, 32)
    with pytest.raises(UserError, match="tasks of 3"):
        shape_of(find_target("jean-zay-a100"), 16, gpus_per_task=3)
    with pytest.raises(UserError, match="has 52"):
        shape_of(find_target("jean-zay-a100"), 8 * 53)


@given(gpus=st.integers(1, 400), capacity=st.sampled_from([1, 2, 4, 8]))
def test_a_shape_has_all_the_gpus_and_refused_ones_have_two_neighbours_that_work(gpus: int, capacity: int):
    target = Target(name="any", gpus_per_node=capacity, cores_per_gpu=3)
    try:
        shape = shape_of(target, gpus)
    except UserError as error:
        below, above = (int(number) for number in re.findall(r"\d+", error.hint or ""))
        assert below < gpus < above
        assert shape_of(target, below).gpus == below
        assert shape_of(target, above).gpus == above
        return
    assert shape.nodes * shape.tasks_per_node == shape.gpus == gpus


def test_the_shortest_qos_that_fits():
    h100 = find_target("jean-zay-h100")
    assert choose_qos(h100, seconds_of("2h"), 32) == "qos_gpu_h100-dev"
    assert choose_qos(h100, seconds_of("2h"), 64) == "qos_gpu_h100-t3"  # dev takes 32 GPUs
    assert choose_qos(h100, seconds_of("1h"), 4, jobs=11) == "qos_gpu_h100-t3"  # dev takes 10 jobs
    assert choose_qos(h100, seconds_of("2h") + 1, 4) == "qos_gpu_h100-t3"
    assert choose_qos(h100, seconds_of("100h"), 16) == "qos_gpu_h100-t4"
    with pytest.raises(UserError, match=r"qos_gpu_h100-t3 ends at 20 h; qos_gpu_h100-t4 takes 16 GPUs") as caught:
        choose_qos(h100, seconds_of("40h"), 64)
    assert "--split" in (caught.value.hint or "")
    with pytest.raises(UserError, match="qos_gpu_h100-dev ends at 2 h"):
        choose_qos(h100, seconds_of("3h"), 4, wanted="qos_gpu_h100-dev")
    with pytest.raises(UserError):
        choose_qos(find_target("jean-zay-a100"), seconds_of("21h"), 8)  # A100 has no t4


def test_a_long_job_is_cut_in_pieces_that_the_qos_takes():
    a100 = find_target("jean-zay-a100")
    pieces = split(a100, seconds_of("90h"), 64, lead_s=lambda _: 300)
    # One piece trains 20 h less 300 s for the signal and 180 s for the start: 90 / 19.87 → 5.
    assert (pieces.seconds, pieces.count, pieces.qos) == (72000, 5, "qos_gpu_a100-t3")
    assert pieces.max_requeues >= 4
    options = options_of(script_of("jean-zay-a100", 64, "90h", split=True))
    assert (options["time"], options["signal"]) == ("20:00:00", "B:USR1@300")
    assert split(a100, 3600, 8, lambda _: 300).count == 1
    with pytest.raises(UserError, match="requeue"):
        script_of("jean-zay-a100", 64, "90h", split=True, requeue=False)


def test_environments_and_containers():
    text = script_of("jean-zay-a100", 8, modules=("singularity",), container="my image.sif")
    assert "singularity exec --nv 'my image.sif' python dlojz.py" in text
    assert "pytorch-gpu" not in text
    text = script_of("jean-zay-a100", 8, container="docker://a/b:c", container_kind="pyxis")
    assert "srun --kill-on-bad-exit=1 --cpus-per-task=8 --container-image=docker://a/b:c" in text
    text = script_of("jean-zay-a100", 8, conda="my env", modules=())
    assert "conda activate 'my env' || exit 1" in text
    assert "module" not in text


def test_the_signal_fits_the_job():
    assert options_of(script_of("jean-zay-a100", 8, "20h"))["signal"] == "B:USR1@300"
    assert options_of(script_of("jean-zay-a100", 8, "10:00"))["signal"] == "B:USR1@60"
    assert options_of(script_of("jean-zay-a100", 8, "1:00"))["signal"] == "B:USR1@30"
    with pytest.raises(UserError, match="before the end"):
        script_of("jean-zay-a100", 8, "5:00", signal_lead_s=300)
    assert "--signal" not in script_of("jean-zay-a100", 8, requeue=False)


@given(words=st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), min_size=1))
def test_the_shell_gives_back_any_words_unchanged(words: list[str]):
    if not words[0]:
        words[0] = "x"
    job = prepare(JobRequest(command=tuple(words), name="x"), Target(name="t", gpus_per_node=4))
    text = render(job, PLACE)
    command = text.split('exec "$@"\' rank \\\n    ')[1].split(" &\nvivace_command=$!\n")[0]
    assert shlex.split(command) == words


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"command": ()}, "no command"),
        ({"name": "a\nb"}, "one line"),
        ({"array": "0-9; rm -rf /"}, "not an array"),
        ({"after": "1; x"}, "not a dependency"),
        ({"variables": {"A B": "1"}}, "environment variable"),
        ({"account": "x\n#SBATCH --exclusive"}, "one line"),
    ],
)
def test_requests_that_cannot_be(wrong: dict[str, object], sentence: str):
    with pytest.raises(UserError, match=sentence):
        JobRequest(**{"command": ("true",), "name": "x", **wrong})  # type: ignore[arg-type]


def test_arrays_and_dependencies():
    options = options_of(script_of("jean-zay-a100", 8, array="0-99%8", after="1234"))
    assert (options["array"], options["dependency"]) == ("0-99%8", "afterok:1234")
    assert options_of(script_of("jean-zay-a100", 8, after="singleton"))["dependency"] == "singleton"


@given(st.integers(1, 10**7))
def test_times_go_to_slurm_and_back(seconds: int):
    assert seconds_of(slurm_time(seconds)) == seconds


def test_times_as_slurm_reads_them():
    texts = {"30": 1800, "1:30": 90, "2:00:00": 7200, "1-0": 86400, "1-2:30": 95400, "1-02:30:15": 95415, "1.5h": 5400}
    assert {text: seconds_of(text) for text in texts} == texts
    for text in ("", "abc", "0", "-1", "1:2:3:4", "5 parsecs"):
        with pytest.raises(UserError):
            seconds_of(text)


def test_what_sinfo_says_makes_a_target():
    text = "gpu_p13*|gpu:v100:4|40|396\ngpu_p2|gpu:v100:8(S:0-1)|24|31\ncpu_p1|(null)|40|720\n"
    target = of_sinfo(text, None)
    assert (target.partition, target.gpus_per_node, target.cores_per_gpu, target.nodes) == ("gpu_p13", 4, 10, 396)
    assert of_sinfo(text, "gpu_p2").gpus_per_node == 8
    with pytest.raises(UserError, match="has GPUs"):
        of_sinfo(text, "cpu_p1")
    with pytest.raises(UserError, match="no partition"):
        of_sinfo(text, "gpu_p9")


@pytest.mark.parametrize(
    ("array", "says"),
    [
        ("0-10:0", "'0-10:0' is an array without a task"),
        ("9-3", "'9-3' is an array without a task"),
        ("0-999999999", "an array's indices end at 4,000,000, not at 999999999"),
    ],
)
def test_an_impossible_array_is_one_sentence(array: str, says: str):
    with pytest.raises(UserError, match=re.escape(says)):
        JobRequest(command=("x",), name="x", array=array)


def test_an_index_that_is_named_twice_is_one_job():
    assert JobRequest(command=("x",), name="x", array="0-6:2,4-5,9%3").jobs == 6
