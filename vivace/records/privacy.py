"""Keeps secrets out of records and reports: which environment variables, arguments and texts may be written down.

A value is hidden when its name says so (``--api-key X``, ``HF_TOKEN=X``, ``?token=X``, ``Authorization: X``), when its
place does (``wandb login X``, ``--user me:X``, the path of a webhook) or when it looks like a known kind of secret
(``hf_…``, ``ghp_…``). In doubt it is hidden: a lost argument costs less than a key.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["REMOVED", "is_secret_variable", "safe_command", "safe_environment", "safe_lines", "safe_text"]

REMOVED = "***"

# Only variables that change how a training runs, by prefix; everything else stays out whatever its name.
_PREFIXES = (
    "CUDA_", "NVIDIA_", "NCCL_", "TORCH_", "TORCHINDUCTOR_", "PYTORCH_", "OMP_", "MKL_", "KMP_", "GLOO_", "TRITON_",
    "CUBLAS_", "CUDNN_", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "SLURM_JOB_ID", "SLURM_NNODES",
    "SLURM_NTASKS", "SLURM_CPUS_PER_TASK", "SLURM_JOB_PARTITION", "SLURM_GPUS",
)  # fmt: skip
# Wider than the rule for options: leaving a variable out of a record costs nothing.
_SECRET_VARIABLE = re.compile(
    r"key|token|secret|pass(?:w|phrase|$|_)|cred|auth|cookie|session|private|signature|_pat$|api|webhook",
    re.IGNORECASE,
)

# A name is cut into parts (`--wandbApiKey`: wandb, api, key), and one of them must be one of these.
_SECRET_PARTS = frozenset({
    "key", "apikey", "token", "secret", "secrets", "password", "passwd", "pass", "pw", "pwd", "pswd", "passphrase",
    "credential", "credentials", "cred", "creds", "auth", "oauth", "authorization", "bearer", "cookie", "signature",
    "pat", "jwt", "webhook",
})  # fmt: skip
# Names written without any separator: `--hftoken`. Not `key` alone, which ends `monkey` too.
_SECRET_ENDINGS = ("token", "password", "passwd", "passphrase", "secret", "apikey", "accesskey", "secretkey", "authkey")
# `--pad-token`, `--max-token`: tokens of a text.
_BEFORE_A_TEXT_TOKEN = frozenset(
    {"max", "min", "num", "pad", "eos", "bos", "unk", "mask", "sep", "cls", "per", "start", "end"}
)
# `--key-dim`, `--num-key-value-heads`, `--token-file`, `KeyError: …`, `auth.py:12`: about a key, not the key.
_HARMLESS_ENDS = frozenset({
    "length", "len", "size", "dim", "dims", "heads", "channels", "frames", "count", "limit", "rate", "dropout", "norm",
    "type", "path", "file", "dir", "error", "exception", "warning", "py",
})  # fmt: skip
# Too common before a colon in messages and code (`lambda key: …`, `signature: (Tensor)`).
_NO_SECRET_BEFORE_COLON = frozenset({"key", "auth", "signature", "pat", "pw", "pass"})
_WHOLE_LINE = frozenset({"authorization", "cookie"})  # headers whose value has several words
_SCHEMES = frozenset({"bearer", "basic", "token"})

_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_NAME = r"(?P<name>(?<![\w.-])[\w.-]+)"
_QUOTED = r"\"(?:\\.|[^\"\\])*\"|'[^']*'|[\"'][^\n]*"  # the last: a quote that is never closed

_ASSIGNED = re.compile(_NAME + r"[\]\"'\\]*\s*(?P<by>=>|:=|==?|:(?!:))\s*")
_FLAG = re.compile(r"(?P<name>(?<![\w.-])--?[A-Za-z][\w.-]*)(?:\s|\\\n)+(?!--[A-Za-z])")
_BEARER = re.compile(r"\b(?P<name>bearer)\s+", re.IGNORECASE)
_IN_QUERY = re.compile(r"[?&#](?P<name>[\w.-]+)=")
_VALUE = re.compile(rf"(?:{_QUOTED})|(?:\"[^\"\s]*\"|'[^'\s]*'|\\.|[\"'](?=\w)|[^\s'\"])+")
_LINE_VALUE = re.compile(rf"(?:{_QUOTED})|[^\n'\"]+")
_QUERY_VALUE = re.compile(r"[^&#\s'\"]+")
_QUERY_PART = re.compile(_IN_QUERY.pattern + _QUERY_VALUE.pattern)
_LONG_FLAG = re.compile(r"--[A-Za-z][\w.-]*(=.*)?", re.DOTALL)
_ASSIGNED_WORD = re.compile(r"(?P<name>[\w.+-]+)=(?P<value>.+)", re.DOTALL)

# Values known by their place. `--user 1000:1000` is a container's user and group.
_USER = re.compile(
    r"(?P<name>(?<![\w.-])--?(?:[\w-]*-)?(?:user|login|u)(?:=|(?:\s|\\\n)+)[\"']?(?!\d+:\d+\b)[^\s:'\"/=]+:)(?!//)"
)
_AFTER_A_PROGRAM = re.compile(
    r"(?<![\w.-])(?P<name>(?:wandb|weave|swanlab|comet|neptune)\s+login(?:\s+--[\w-]+(?:=\S+|\s+https?://\S+)?)*"
    r"|sshpass\s+-p)\s+(?!-)"
)
_ENDS_AFTER_A_PROGRAM = re.compile(rf"(?:{_AFTER_A_PROGRAM.pattern})\Z")
_BY_PLACE = (_USER, _AFTER_A_PROGRAM)
_PLACE_WORDS = 6  # so many words before an argument are looked at: `wandb login --relogin --host URL X`

_WEBHOOK = re.compile(
    r"(?P<kept>https?://(?=[^\s'\"]*hook)[^/\s'\"]+/|//api\.telegram\.org/bot)[^\s'\"]+", re.IGNORECASE
)
_LOGIN_IN_URL = re.compile(r"://[^/\s'\"?#]+@")
# By their issuers' documented prefixes. `hf_trainer` and `sk-learn` are names: a key is longer, or has digits.
_SHAPES = re.compile(
    r"""(?<![A-Za-z0-9])(?:
        hf_(?:[A-Za-z0-9]{16,}|(?=[A-Za-z]*\d)(?=[a-z0-9]*[A-Z])[A-Za-z0-9]{8,})
        | sk-(?=[\w-]{0,99}\d)[\w-]{8,}
        | gh[pousr]_[A-Za-z0-9]{8,} | github_pat_\w{8,} | glpat-[\w-]{8,}
        | A[KS]IA[0-9A-Z]{12,} | xox[abprs]-[\w-]{8,} | AIza[\w-]{30,}
        | eyJ[\w-]{8,}\.[\w-]+\.[\w-]*
    )""",
    re.VERBOSE,
)
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)


def safe_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables worth recording, without any whose name or value looks like a secret."""
    return {
        name: value
        for name, value in sorted(environment.items())
        if name.startswith(_PREFIXES) and not is_secret_variable(name, value)
    }


def is_secret_variable(name: str, value: str) -> bool:
    """
    >>> is_secret_variable("HF_TOKEN", "abc"), is_secret_variable("MODEL", "gpt2")
    (True, False)
    """
    return _SECRET_VARIABLE.search(name) is not None or safe_text(value) != value


def safe_command(command: Sequence[str]) -> tuple[str, ...]:
    """The command with the values of secret-looking options replaced, also inside the words of ``bash -c "…"``.

    >>> safe_command(["python", "t.py", "--wandb-key", "abc", "--lr=0.1"])
    ('python', 't.py', '--wandb-key', '***', '--lr=0.1')
    """
    safe: list[str] = []
    hide_next = False
    for index, word in enumerate(command):
        if hide_next and not _LONG_FLAG.fullmatch(word):  # a secret may start with a dash
            safe.append(REMOVED)
            hide_next = word.lower() in _SCHEMES  # `Authorization: Bearer X`, not quoted
        else:
            safe.append(_safe_after(command[max(0, index - _PLACE_WORDS) : index], word))
            hide_next = _announces_a_secret(word)
    return tuple(safe)


def safe_text(text: str) -> str:
    """One sentence (an exception's message, a shell command) without the secrets in it.

    >>> safe_text("401 for https://me:pw@host/?token=abc&page=2 with Authorization: Bearer xyz")
    '401 for https://***@host/?token=***&page=2 with Authorization: ***'
    """
    text = _PRIVATE_KEY.sub(REMOVED, text)
    text = _LOGIN_IN_URL.sub(f"://{REMOVED}@", text)
    text = _WEBHOOK.sub(rf"\g<kept>{REMOVED}", text)
    return _SHAPES.sub(REMOVED, _without_values(text))


def _safe_after(before: Sequence[str], word: str) -> str:
    """One argument, which the words before it may make a secret: ``wandb login X``, ``--user me:X``."""
    if not word.startswith("-") and _ENDS_AFTER_A_PROGRAM.search(" ".join([*before, ""])):
        return REMOVED
    if before and _USER.match(f"{before[-1]} {word}"):
        return safe_text(f"{before[-1]} {word}")[len(before[-1]) + 1 :]
    return _safe_word(word)


def _safe_word(word: str) -> str:
    """One argument: of ``--password=my secret words`` all the words are the value."""
    assigned = _ASSIGNED_WORD.fullmatch(word)
    if assigned and _names_a_secret(assigned["name"]):
        return f"{assigned['name']}={REMOVED}"
    return safe_text(word)


def _announces_a_secret(word: str) -> bool:
    """``--token``, ``Authorization:`` and ``Bearer`` say that the next word is one."""
    if word.startswith("-") or word.endswith(":"):
        return re.fullmatch(r"[\w.-]+:?", word) is not None and _names_a_secret(word)
    return word.lower() == "bearer"


def _without_values(text: str) -> str:
    """All values are found before any is replaced: what is a value to one rule may be a name to another."""
    spans = sorted(
        span for before in (_IN_QUERY, _ASSIGNED, _FLAG, _BEARER, *_BY_PLACE) for span in _values_after(before, text)
    )
    pieces: list[str] = []
    done = 0
    for start, end in spans:
        if start >= done:
            pieces += [text[done:start], REMOVED]
        done = max(done, end)
    return "".join([*pieces, text[done:]])


def _values_after(before: re.Pattern[str], text: str) -> Iterator[tuple[int, int]]:
    """Where the values stand that follow a secret's name. ``before`` matches names only: values may hold names."""
    ends: dict[re.Pattern[str], int] = {}
    for found in before.finditer(text):
        if not _is_secret_match(found, before):
            continue
        pattern = _value_pattern(found, before)
        if found.end() < ends.get(pattern, 0):  # inside a value of the same kind: looking again would take n² time
            continue
        if value := pattern.match(text, found.end()):
            ends[pattern] = value.end()
            yield value.span()


def _is_secret_match(found: re.Match[str], before: re.Pattern[str]) -> bool:
    name = found["name"]
    if before in _BY_PLACE:
        return True
    if before is _ASSIGNED and found["by"] == ":" and name.lower() in _NO_SECRET_BEFORE_COLON:
        return False
    return _names_a_secret(name) or (before is _IN_QUERY and name.lower() == "sig")


def _value_pattern(found: re.Match[str], before: re.Pattern[str]) -> re.Pattern[str]:
    if before is _IN_QUERY or (before is _ASSIGNED and _QUERY_PART.match(found.string, max(0, found.start() - 1))):
        return _QUERY_VALUE  # the rest of an address may stay
    return _LINE_VALUE if before is _ASSIGNED and _WHOLE_LINE.intersection(_parts(found["name"])) else _VALUE


def _names_a_secret(name: str) -> bool:
    parts = _parts(name)
    if not parts or parts[-1] in _HARMLESS_ENDS:
        return False
    return any(_is_secret_part(part, previous) for previous, part in zip(["", *parts], parts, strict=False))


def _is_secret_part(part: str, previous: str) -> bool:
    if part == "token" and previous in _BEFORE_A_TEXT_TOKEN:
        return False
    return part in _SECRET_PARTS or part.endswith(_SECRET_ENDINGS)


def _parts(name: str) -> list[str]:
    return [part.lower() for part in _PART.findall(name)]


def safe_lines(value: Any) -> Any:
    """The same data; lines of a script (``code``) and sentences about it (``notes``) without secrets, however deep."""
    if isinstance(value, Mapping):
        return {
            name: _safe_line(item) if name in ("code", "notes") else safe_lines(item) for name, item in value.items()
        }
    return [safe_lines(item) for item in value] if isinstance(value, list) else value


def _safe_line(value: Any) -> Any:
    if isinstance(value, list):
        return [_safe_line(item) for item in value]
    return safe_text(value) if isinstance(value, str) else value
