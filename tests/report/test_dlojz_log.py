"""The reader of the trainer's printouts: hand-written logs, the script's own, broken ones."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from forked.process import PYTHON
from hypothesis import given
from hypothesis import strategies as st

from vivace.errors import UserError
from vivace.report.dlojz_log import DlojzLog, LogPoint, controle_technique, memory_model, read_log

SCRIPT = Path(__file__).parents[2] / "examples" / "dlojz.py"
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}  # tests side by side share the cores

LOG = """\
>>> Training on  2  nodes and  8  processes
model: Resnet-152
number of parameters: 60192808
global batch size: 4096 - mini batch size: 512
Optimizer: SGD (
Parameter Group 0
    lr: 0.1
)
DATALOADER 16 True True True 2 False
image batch shape : torch.Size([512, 3, 224, 224])
Epoch [1/2], Step [31/312], Time: 12.345, Loss: 6.9078, Acc:0.0010
Epoch [1/2], Step [62/312], Time: 11.000, Loss: 6.5000, Acc:0.0125
##EVALUATION STEP##
Epoch [1/2], Validation Loss: 6.1000, Validation Accuracy: 0.0312
>>> Validation complete in: 0:00:10
>>> Training complete in: 1 day, 2:00:30.500000
>>> Training performance time: min 0.39 avg 0.4 seconds (+/- 0.01)
>>> Loading performance time: min 0.0005 avg 0.1 seconds (+/- 2.5e-05)
>>> Forward performance time: 0.1 seconds (+/- 0.002)
>>> Backward performance time: 0.3 seconds (+/- 0.004)
>>> Peak Power during training: 402.125 W)
>>> Validation time estimation: 1:00:10.250000
>>> Sortie trace #####################################
>>>JSON {"GPU process - Forward/Backward": [3.5, 0.4, 0.41], "CPU process - Dataloader": [9.0, 0.1, 0.1]}
>>> Number of batch per epoch: 312
Max Memory Allocated 34359738368 Bytes
Last epoch checkpointed to checkpoints/123_4096.pt
"""

OOM = """\
Traceback (most recent call last):
  File "dlojz.py", line 300, in <module>
    main()
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.53 GiB. GPU 0 has a total capacity of 79.1 GiB
srun: error: r10i0n1: task 0: Exited with exit code 1
"""


def test_figures_of_a_log() -> None:
    log = read_log(LOG)
    assert (log.nodes, log.processes) == (2, 8)
    assert (log.model, log.parameters) == ("Resnet-152", 60_192_808)
    assert (log.global_batch, log.mini_batch) == (4096, 512)
    assert log.batch_shape == (512, 3, 224, 224)
    assert log.batches_per_epoch == 312
    assert (log.step_min_s, log.step_median_s, log.step_std_s) == (0.39, 0.4, 0.01)
    assert (log.load_min_s, log.load_mean_s, log.load_std_s) == (0.0005, 0.1, 2.5e-05)
    assert log.peak_power_w == 402.125
    assert log.training_s == 26 * 3600 + 30.5
    assert log.validation_s == 3610.25
    assert log.memory_bytes == 32 * 2**30
    assert log.step_series_s == (3.5, 0.4, 0.41)
    assert log.load_series_s == (9.0, 0.1, 0.1)
    assert log.progress == (LogPoint(1, 31, 6.9078, 0.001), LogPoint(1, 62, 6.5, 0.0125))
    assert log.validations == ((1, 6.1, 0.0312),)
    assert log.checkpoint == "checkpoints/123_4096.pt"
    assert (log.out_of_memory, log.error) == (False, None)


def test_derived_figures() -> None:
    log = read_log(LOG)
    assert log.gpu_throughput == pytest.approx(10_240)  # 4096 / 0.4
    assert log.train_throughput == pytest.approx(8_192)  # 4096 / 0.5
    assert log.epoch_s == pytest.approx(156)  # 0.5 x 312
    assert (log.forward_share, log.backward_share) == (pytest.approx(0.25), pytest.approx(0.75))
    assert log.total_peak_power_w == pytest.approx(3217)  # 8 x 402.125


def test_a_log_appended_to_speaks_of_its_last_run() -> None:
    second = LOG.replace("avg 0.4 seconds", "avg 0.8 seconds").replace("Bytes", "Bytes")
    assert read_log(LOG + second).step_median_s == 0.8


def test_out_of_memory() -> None:
    started = LOG[: LOG.index("Epoch")]
    log = read_log(started, OOM)
    assert log.out_of_memory
    assert log.error is not None
    assert log.error.startswith("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.53 GiB.")
    assert log.global_batch == 4096
    assert (log.gpu_throughput, log.train_throughput, log.epoch_s, log.forward_share) == (None,) * 4


@pytest.mark.parametrize(
    ("stderr", "error", "out_of_memory"),
    [
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=12.0", None, True),
        (
            "[rank0]: Traceback (most recent call last):\n[rank0]:   File\n[rank0]: KeyError: 'x'\n",
            "KeyError: 'x'",
            False,
        ),
        ("3: Traceback (most recent call last):\n3:   File\n3: ValueError: no\n", "ValueError: no", False),
        (
            "Traceback (most recent call last):\n  a\nKeyError: 1\n\nDuring handling of the above exception, "
            "another exception occurred:\n\nTraceback (most recent call last):\n  b\nRuntimeError: two\n",
            "RuntimeError: two",
            False,
        ),
        ("usage: dlojz.py\ndlojz.py: error: unrecognized arguments: --image_size 176\n", None, False),
        ("Traceback (most recent call last):\n  File", None, False),
        ("UserWarning: slow\n", None, False),
    ],
)
def test_errors_of_stderr(stderr: str, error: str | None, out_of_memory: bool) -> None:
    log = read_log("", stderr)
    assert log.out_of_memory is out_of_memory
    if "error: " in stderr:  # a program says it in one line
        error = stderr.strip().splitlines()[-1]
    assert log.error == error


def test_unmeasured_figures_are_none() -> None:
    log = read_log(
        ">>> Training performance time: min nan avg nan seconds (+/- nan)\n"
        ">>> Peak Power during training: not measured\n"
        "global batch size: 8 - mini batch size: 8\n"
    )
    assert (log.step_median_s, log.peak_power_w, log.gpu_throughput) == (None, None, None)


@given(st.integers(0, len(LOG)))
def test_a_truncated_log_never_raises_and_never_invents(length: int) -> None:
    whole, part = read_log(LOG), read_log(LOG[:length].rpartition("\n")[0] + "\n")
    for name, value in vars(part).items():
        if isinstance(value, tuple) and name != "batch_shape":
            assert value == vars(whole)[name][: len(value)]
        else:
            assert value in (None, False, vars(whole)[name])
    read_log(LOG[:length])


@given(st.text(), st.text())
def test_any_text_is_read(out: str, err: str) -> None:
    assert isinstance(read_log(out, err), DlojzLog)


@pytest.mark.parametrize("line", [">>>JSON {", ">>>JSON [1]", '>>>JSON {"CPU process - Dataloader": "x"}', ">>>JSON"])
def test_a_garbled_series_is_empty(line: str) -> None:
    assert read_log(line).load_series_s == ()


def test_controle_technique_prints_the_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.out").write_text(LOG)
    (tmp_path / "a.err").write_text(OOM)
    assert controle_technique(tmp_path / "a.out", tmp_path / "a.err").processes == 8
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "model               Resnet-152, 60,192,808 parameters"
    assert "GPU throughput      10240.0 images/s" in lines
    assert "train throughput    8192.0 images/s" in lines
    assert "forward / backward  25.0% / 75.0%" in lines
    assert "epoch               156.0 s" in lines
    assert "peak power          3217 W (402 W per GPU)" in lines
    assert "memory              32.00 GiB" in lines
    assert lines[-2].startswith("out of memory       yes")
    assert lines[-1].startswith("error               torch.OutOfMemoryError")


def test_controle_technique_of_a_killed_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.out").write_text(LOG[: LOG.index("mini batch size: 512") + len("mini batch size: 5")])
    log = controle_technique(tmp_path / "a.out")
    assert (log.parameters, log.mini_batch) == (60_192_808, None)
    assert "GPU throughput      - images/s" in capsys.readouterr().out
    with pytest.raises(UserError, match="cannot read the log"):
        controle_technique(tmp_path / "b.out")


def test_the_scripts_own_log_is_read_whole(tmp_path: Path) -> None:
    flags = "--model resnet18 --image-size 32 -b 4 --num-workers 0 --dataset-size 20 --test --test-nsteps 3"
    command = [PYTHON, str(SCRIPT), *flags.split()]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True, env=ENVIRONMENT)
    log = read_log(result.stdout, result.stderr)
    assert (log.model, log.parameters, log.global_batch) == ("Resnet-18", 11_689_512, 4)
    assert log.batches_per_epoch == 5
    assert len(log.step_series_s) == len(log.load_series_s) == 3
    assert log.step_min_s == min(log.step_series_s[1:])
    assert log.step_median_s == pytest.approx(sum(log.step_series_s[1:]) / 2)  # of two: their middle
    assert log.load_mean_s == pytest.approx(sum(log.load_series_s[1:]) / 2)
    assert log.gpu_throughput == pytest.approx(4 / log.step_median_s)
    assert log.memory_bytes == 0
    assert log.validations == ()  # its few batches tell the time of a validation, not its result
    assert None not in (log.training_s, log.validation_s, log.epoch_s, log.forward_share)
    assert (log.out_of_memory, log.error) == (False, None)


def test_memory_model() -> None:
    """Where the batch doubles, the course's formula mem2 - (bs2/bs1) x (mem2 - mem1) agrees."""
    model = memory_model(128, 10e9, 256, 18e9)
    assert model.model_bytes == pytest.approx(18e9 - 2 * 8e9)
    assert model.bytes_per_sample == pytest.approx(62.5e6)
    # Not doubled: 3 GB of model and 50 MB a sample are found again (the course's formula gives -45 GB).
    general = memory_model(64, 3e9 + 64 * 50e6, 320, 3e9 + 320 * 50e6)
    assert general.model_bytes == pytest.approx(3e9)
    assert general.bytes_at(512) == pytest.approx(3e9 + 512 * 50e6)
    with pytest.raises(ValueError, match="two different batch sizes"):
        memory_model(64, 1e9, 64, 2e9)
