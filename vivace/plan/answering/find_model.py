"""The model that a request means: a built-in name, sizes, a ``config.json``, or an image model's name or function.

Called by the CLI.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from vivace.errors import UserError
from vivace.plan.answering.request import Request
from vivace.plan.facts.limits import at_least
from vivace.plan.images.image_job import image_model_maker
from vivace.plan.images.names import known_image_models
from vivace.plan.models.built_in import named_transformer, unknown_model
from vivace.plan.models.config_file import from_config
from vivace.plan.models.transformer import Transformer

__all__ = ["find_model", "is_config"]


def find_model(request: Request) -> Transformer | str:
    """A transformer, or the name of an image model."""
    at_least("--seq-len", request.seq_len, 1)
    at_least("--image-size", request.image_size, 1)
    found = _found_model(request)
    if isinstance(found, Transformer) and request.image_size is not None:
        raise UserError(f"--image-size is for image models, and {found.name} is a transformer", hint="use --seq-len")
    if isinstance(found, str) and request.seq_len is not None:
        raise UserError(f"--seq-len is for transformers, and {found} is an image model", hint="use --image-size")
    return found


def is_config(name: str) -> bool:
    """A JSON file, or a folder that holds a ``config.json``."""
    return name.endswith(".json") or Path(name, "config.json").is_file()


def _found_model(request: Request) -> Transformer | str:
    if request.sizes:
        return _from_sizes(request)
    if is_config(request.model):
        path = Path(request.model)
        return from_config(path / "config.json" if path.is_dir() else path, request.seq_len)
    named = named_transformer(request.model)
    if named is not None:
        return _at_length(named, request.seq_len)
    if image_model_maker(request.model, request.image_side) is not None:
        return request.model
    raise unknown_model(request.model, known_image_models())


def _at_length(model: Transformer, seq_len: int | None) -> Transformer:
    """A shorter sequence leaves learned positions as they are; a longer one needs more of them."""
    if seq_len is None:
        return model
    rows = max(model.seq_len, seq_len) if model.positions == "learned" else 0
    return replace(model, seq_len=seq_len, position_rows=rows)


def _from_sizes(request: Request) -> Transformer:
    sizes = dict(request.sizes)
    for name in ("layers", "hidden", "heads"):
        if name not in sizes:
            raise UserError(
                f"a transformer given by its sizes needs --{name}", hint="--layers, --hidden and --heads are needed"
            )
    for name, value in sizes.items():
        at_least(f"--{name.replace('_', '-')}", value, 1)
    _check_heads(sizes["hidden"], sizes["heads"], sizes.get("kv_heads", sizes["heads"]))
    gated = bool(sizes.get("ffn")) and sizes["ffn"] < 4 * sizes["hidden"] and "kv_heads" in sizes
    return Transformer(
        name=request.model,
        layers=sizes["layers"],
        hidden=sizes["hidden"],
        heads=sizes["heads"],
        kv_heads=sizes.get("kv_heads", sizes["heads"]),
        ffn=sizes.get("ffn", 4 * sizes["hidden"]),
        vocab=sizes.get("vocab", 50_304),
        seq_len=2048 if request.seq_len is None else request.seq_len,
        gated=gated,
        biases=not gated,
        positions="rotary" if gated else "learned",
        dropout=not gated,
    )


def _check_heads(hidden: int, heads: int, kv_heads: int) -> None:
    if hidden % heads:
        raise UserError(
            f"--heads {heads} does not divide --hidden {hidden}",
            hint=f"use --heads {_nearest_divisor(hidden, heads)}",
        )
    if heads % kv_heads:
        raise UserError(
            f"--kv-heads {kv_heads} does not divide --heads {heads}",
            hint=f"use --kv-heads {_nearest_divisor(heads, kv_heads)}",
        )


def _nearest_divisor(whole: int, wanted: int) -> int:
    """
    >>> _nearest_divisor(768, 7)
    8
    """
    divisors = [n for n in range(1, min(whole, 2 * wanted) + 1) if whole % n == 0]
    return min(divisors, key=lambda n: (abs(n - wanted), -n))
