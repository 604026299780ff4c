"""No secret gets into a record."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.records.privacy import safe_command, safe_environment


def test_only_variables_that_matter_for_speed_are_kept():
    environment = {
        "CUDA_VISIBLE_DEVICES": "0", "NCCL_DEBUG": "INFO", "OMP_NUM_THREADS": "4", "HOME": "/me", "WANDB_API_KEY": "s",
        "TORCH_HUB_TOKEN": "s", "NCCL_AUTH": "s", "SLURM_JWT": "s", "CUDA_PROXY": "http://me:s@host",
    }  # fmt: skip
    assert safe_environment(environment) == {"CUDA_VISIBLE_DEVICES": "0", "NCCL_DEBUG": "INFO", "OMP_NUM_THREADS": "4"}


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["t.py", "--api-key", "s3cret"], ("t.py", "--api-key", "***")),
        (["t.py", "--wandb-key=s3cret", "--lr", "1"], ("t.py", "--wandb-key=***", "--lr", "1")),
        (["t.py", "--hf-token", "s3cret", "--lr=1"], ("t.py", "--hf-token", "***", "--lr=1")),
        (["env", "MY_PASSWORD=s3cret", "t.py"], ("env", "MY_PASSWORD=***", "t.py")),
        (["t.py", "--db", "mysql://me:s3cret@host/x"], ("t.py", "--db", "mysql://***@host/x")),
        (["t.py", "--max-tokens", "512", "--tokenizer", "x"], ("t.py", "--max-tokens", "512", "--tokenizer", "x")),
        (["t.py", "--use-auth", "--lr", "1"], ("t.py", "--use-auth", "--lr", "1")),
    ],
)  # fmt: skip
def test_values_of_secret_options_are_removed(command: list[str], expected: tuple[str, ...]):
    assert safe_command(command) == expected


@given(st.text(min_size=8, alphabet=st.characters(categories=["L", "N"])))
def test_no_value_of_a_secret_option_survives(value: str):
    assert value not in safe_command(["t.py", "--secret", value]) or value == "***"
    assert value not in "".join(safe_command(["t.py", f"--my-token={value}"]))[len("t.py--my-token=") :]
