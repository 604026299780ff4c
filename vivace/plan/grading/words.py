"""Numbers and words as published tables spell them: "1.3B", "50,304", "OOM", "ZeRO-1 (Megatron-DeepSpeed)".

Pure text functions that never guess silently: an unknown spelling gives None. Called by ``tables.py``.
"""

from __future__ import annotations

import re

__all__ = [
    "attention_kind",
    "has_out_of_memory",
    "network_gb_s_per_gpu",
    "number",
    "recompute_kind",
    "truth",
    "whole",
    "zero_stage",
]

_SUFFIX = {"k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
_NUMBER = re.compile(r"[<>=~≤≥≈\s]*([-+]?\d[\d,_]*(?:\.\d+)?(?:e[-+]?\d+)?)\s*([kmbgt](?![a-z]))?", re.IGNORECASE)


def number(text: str | None) -> float | None:
    """The number at the start of a cell, or None for a blank or a word.

    >>> number("176247M"), number("50,304"), number("N/A")
    (176247000000.0, 50304.0, None)
    """
    found = _NUMBER.match((text or "").strip())
    if not found:
        return None
    value = float(found[1].replace(",", "").replace("_", ""))
    return value * _SUFFIX[found[2].lower()] if found[2] else value


def whole(text: str | None, otherwise: int | None = None) -> int | None:
    value = number(text)
    return otherwise if value is None else round(value)


def truth(text: str | None) -> bool | None:
    word = (text or "").strip().lower()
    if word in ("yes", "true", "on", "1", "y", "enabled", "sp"):
        return True
    if word in ("no", "false", "off", "0", "n", "none", "disabled"):
        return False
    return True if word and word[0].isdigit() and number(word) != 0 else None


def has_out_of_memory(*cells: str | None) -> bool:
    """A row that says it ran out of memory (but not one that only says it came close)."""
    for cell in cells:
        text = (cell or "").lower()
        if re.search(r"\boom\b|out of memory", text) and "borderline" not in text and "no oom" not in text:
            return True
    return False


def zero_stage(text: str | None) -> int | None:
    """0 replicated, 1 to 3 sharded; None when the cell is blank or says nothing about it."""
    word = (text or "").strip().lower().replace("_", "-").replace(" ", "-")
    if not word:
        return None
    stage = re.search(r"(?:zero|stage)-*:?-*([0-3])", word)
    if stage:
        return int(stage[1])
    if "shard-grad-op" in word:
        return 2
    if re.search(r"no-shard", word):
        return 0
    if re.search(r"fsdp|full-shard|fully|hsdp|hybrid", word):
        return 3
    if re.search(r"dist[a-z-]*opt|distributed-optimizer|zero|sharded-opt", word):
        return 1
    return 0 if re.search(r"ddp|dp|replic|all-?reduce|horovod", word) else None


def recompute_kind(text: str | None) -> str | None:
    """``none``, ``selective`` or ``full``; None when blank. "No recompute" is none, "no (flash)" too."""
    word = (text or "").strip().lower()
    if not word:
        return None
    if re.match(r"(none|no|false|off|0|without|disabled|-)\b", word) or word == "-":
        return "none"
    if re.search(r"selective|\bsac\b|attention|core|op\b", word) and "full" not in word:
        return "selective"
    if re.search(r"full|true|yes|on\b|uniform|block|all|^1$|ckpt|checkpoint|enabled", word):
        return "full"
    return None


def attention_kind(text: str | None) -> str | None:
    word = (text or "").strip().lower()
    if not word:
        return None
    if re.search(r"no[- ]?flash|without flash|unfused\+?fused softmax|fused softmax|unfused|naive|core", word):
        return "fused-softmax"
    if re.search(r"flash|fa[23]?\b|sdpa|triton|cudnn|fused|te\b|mem.*eff|xformers|cutlass", word):
        return "flash"
    return "eager" if re.search(r"eager|math|torch|standard|vanilla", word) else None


def network_gb_s_per_gpu(text: str | None, gpus_per_node: int) -> float | None:
    """Network bandwidth per GPU and direction, in GB/s, from words like "8x200Gb/s HDR".

    >>> network_gb_s_per_gpu("1600 Gbps node-node RoCE", 8)
    25.0
    """
    words = (text or "").replace(",", "")
    gbits = r"(\d+(?:\.\d+)?)\s*G(?:b|bit|bits)(?:/s|ps|it/s)"
    several = re.search(r"(\d+)\s*[x×]\s*[A-Za-z-]*\s*[A-Za-z-]*\s*" + gbits, words)
    if several:
        total = float(several[1]) * float(several[2])
        per_gpu = "per gpu" in words.lower() or "/gpu" in words.lower()
        return total / 8 if per_gpu else total / 8 / gpus_per_node
    single = re.search(gbits, words)
    if single:
        value = float(single[1]) / 8
        per_gpu = bool(re.search(r"(per|/|each)\s*(gpu|nic|link|card|port)", words.lower()))
        return value if per_gpu else value / gpus_per_node
    lowered = words.lower()
    for word, rate in (("xdr", 100.0), ("ndr", 50.0), ("cx-7", 50.0), ("connectx-7", 50.0), ("hdr", 25.0)):
        if word in lowered:
            return rate
    return None
