"""Keeps secrets out of records and reports: which environment variables and arguments may be written down."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

__all__ = ["REMOVED", "safe_command", "safe_environment"]

REMOVED = "***"

# Only variables that change how a training runs, by prefix; everything else stays out whatever its name.
_PREFIXES = (
    "CUDA_", "NVIDIA_", "NCCL_", "TORCH_", "TORCHINDUCTOR_", "PYTORCH_", "OMP_", "MKL_", "KMP_", "GLOO_", "TRITON_",
    "CUBLAS_", "CUDNN_", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "SLURM_JOB_ID", "SLURM_NNODES",
    "SLURM_NTASKS", "SLURM_CPUS_PER_TASK", "SLURM_JOB_PARTITION", "SLURM_GPUS",
)  # fmt: skip
_SECRET = re.compile(
    r"key|token|secret|passw|passphrase|credential|auth|cookie|session|private|signature|_pat$|api",
    re.IGNORECASE,
)
_URL_WITH_LOGIN = re.compile(r"://[^/@\s]+@")


def safe_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables worth recording, without any whose name or value looks like a secret."""
    return {
        name: value
        for name, value in sorted(environment.items())
        if name.startswith(_PREFIXES) and not _SECRET.search(name) and not _URL_WITH_LOGIN.search(value)
    }


def safe_command(command: Sequence[str]) -> tuple[str, ...]:
    """The command with the values of secret-looking options replaced: ``--api-key X`` and ``--api-key=X``.

    >>> safe_command(["python", "t.py", "--wandb-key", "abc", "--lr=0.1"])
    ('python', 't.py', '--wandb-key', '***', '--lr=0.1')
    """
    safe: list[str] = []
    hide_next = False
    for word in command:
        name, equals, _value = word.partition("=")
        if hide_next and not word.startswith("-"):
            safe.append(REMOVED)
            hide_next = False
            continue
        hide_next = False
        looks_secret = bool(_SECRET.search(name)) and (name.startswith("-") or bool(equals)) and not _is_path(name)
        if looks_secret and equals:
            safe.append(f"{name}={REMOVED}")
        else:
            safe.append(_URL_WITH_LOGIN.sub(f"://{REMOVED}@", word))
            hide_next = looks_secret
    return tuple(safe)


def _is_path(name: str) -> bool:
    """``--tokenizer-path`` and ``--num-tokens`` are no secrets."""
    return bool(re.search(r"tokeni[sz]er|tokens|max[-_]token|author|keypoint|monkey", name, re.IGNORECASE))
