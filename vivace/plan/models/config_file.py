"""A Hugging Face ``config.json`` as a ``Transformer``: sizes from its keys, the rest from its architecture.

Reads the file that it is given. What the planner does not model is refused (``refusals.py``), so that the
parameter count is the model's own. Called by ``find_model.py``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from vivace.errors import UserError
from vivace.files import read_user_text
from vivace.plan.models.architectures import ARCHITECTURES, Architecture
from vivace.plan.models.refusals import refuse_what_is_not_modelled
from vivace.plan.models.transformer import Transformer

__all__ = ["from_config"]

Config = Mapping[str, Any]

# Spellings of one size over the families, the most usual first.
HIDDEN = ("hidden_size", "n_embd", "d_model", "n_embed", "dim")
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv")
FFN = ("intermediate_size", "n_inner", "ffn_dim", "d_ff", "hidden_dim")
POSITIONS = ("max_position_embeddings", "n_positions", "n_ctx", "seq_length", "max_seq_len", "model_max_length")
DROPOUTS = (
    "attention_dropout",
    "attn_pdrop",
    "resid_pdrop",
    "embd_pdrop",
    "hidden_dropout",
    "dropout",
    "residual_dropout",
    "embed_dropout",
    "resid_dropout",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
)


def from_config(path: Path | str, seq_len: int | None = None) -> Transformer:
    """The model that a ``config.json`` describes; what the planner cannot count is a ``UserError``."""
    try:
        config = json.loads(read_user_text(path))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read as a config.json: {error}") from None
    if not isinstance(config, dict):
        raise UserError(f"{path} is not a config.json: it holds no object")
    source = str(path)
    refuse_what_is_not_modelled(config, source)
    architecture = ARCHITECTURES[config["model_type"]].of(config)
    model = _sized(config, source, architecture, seq_len)
    return _with_small_parameters(_with_window(model, architecture, config), architecture, config)


def _first(config: Config, keys: tuple[str, ...]) -> Any:
    return next((config[key] for key in keys if config.get(key) is not None), None)


def _size(config: Config, source: str, keys: tuple[str, ...]) -> int | None:
    """A whole number of at least one, or None when no key is there."""
    value = _first(config, keys)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value) or value < 1:
        key = next(key for key in keys if config.get(key) is not None)
        raise UserError(f"{source} has {key} = {value!r}, which is not a size", hint="use a whole number from 1 up")
    return int(value)


def _needed(config: Config, source: str, keys: tuple[str, ...]) -> int:
    value = _size(config, source, keys)
    if value is None:
        raise UserError(f"{source} has no {keys[0]}", hint=f"one of {', '.join(keys)} is needed")
    return value


def _sized(config: Config, source: str, architecture: Architecture, seq_len: int | None) -> Transformer:
    """The matrices: all that costs time."""
    hidden, heads = _needed(config, source, HIDDEN), _needed(config, source, HEADS)
    _refuse_projected_embedding(config, source, hidden)
    head_dim = _size(config, source, ("head_dim",)) or 0
    if hidden % heads and not head_dim:
        raise UserError(f"{source}: {heads} heads do not divide the hidden size {hidden}", hint="give it a head_dim")
    positions = _size(config, source, POSITIONS) or 2048
    longest = positions - architecture.position_reserve
    _check_positions(architecture, source, longest, seq_len)
    tied = config.get("tie_word_embeddings")
    return Transformer(
        name=str(_first(config, ("_name_or_path", "model_type"))),
        layers=_needed(config, source, LAYERS),
        hidden=hidden,
        heads=heads,
        kv_heads=1 if architecture.multi_query else _kv_heads(config, source, heads),
        ffn=_size(config, source, FFN) or hidden * (_size(config, source, ("expansion_ratio",)) or 4),
        vocab=_needed(config, source, ("vocab_size",)),
        seq_len=longest if seq_len is None else seq_len,
        gated=architecture.gated,
        biases=bool(architecture.ffn_bias),
        tied=architecture.tied if tied is None else bool(tied),
        positions=architecture.positions,
        position_rows=positions + architecture.position_offset if architecture.positions == "learned" else 0,
        dropout=_has_dropout(config, architecture),
        head_dim_given=head_dim if head_dim * heads != hidden else 0,
        causal=not architecture.masked,
    )


def _refuse_projected_embedding(config: Config, source: str, hidden: int) -> None:
    width = _size(config, source, ("word_embed_proj_dim", "embedding_size"))
    if width is not None and width != hidden:
        raise UserError(
            f"{source} projects an embedding of {width} to a hidden size of {hidden}, which vivace plan does not model",
            hint="plan a model of the same family whose embedding is as wide as its layers",
        )


def _check_positions(architecture: Architecture, source: str, longest: int, seq_len: int | None) -> None:
    if architecture.positions == "learned" and seq_len is not None and seq_len > longest:
        raise UserError(
            f"--seq-len {seq_len} is more than the {longest} positions that {source} learns",
            hint=f"use --seq-len {longest} or less, or raise its number of positions",
        )


def _kv_heads(config: Config, source: str, heads: int) -> int:
    """MPT keeps its attention's keys in a table of their own."""
    inner = config.get("attn_config")
    if isinstance(inner, Mapping) and inner.get("attn_type") == "multiquery_attention":
        return 1
    nested = _size(inner, source, ("kv_n_heads",)) if isinstance(inner, Mapping) else None
    kv_heads = nested or _size(config, source, KV_HEADS) or heads
    if heads % kv_heads:
        raise UserError(
            f"{source}: {kv_heads} key-value heads do not divide {heads} heads", hint="check num_key_value_heads"
        )
    return kv_heads


def _has_dropout(config: Config, architecture: Architecture) -> bool:
    given = [config[key] for key in DROPOUTS if isinstance(config.get(key), int | float)]
    return any(value > 0 for value in given) if given else architecture.dropout


def _with_window(model: Transformer, architecture: Architecture, config: Config) -> Transformer:
    """Sliding windows: how wide, and in how many layers."""
    window = _first(config, ("sliding_window", "window_size"))
    layers = _windowed_layers(model.layers, architecture, config)
    if not isinstance(window, int) or isinstance(window, bool) or window < 1 or layers == 0:
        return model
    return replace(model, window=window, windowed_layers=layers)


def _windowed_layers(layers: int, architecture: Architecture, config: Config) -> int:
    if architecture.windowed == "never":
        return 0
    kinds = config.get("layer_types")
    if isinstance(kinds, list):
        return sum(kind == "sliding_attention" for kind in kinds)
    if architecture.windowed == "if used":
        first = config.get("max_window_layers")
        return max(0, layers - int(first or 0)) if config.get("use_sliding_window") else 0
    if architecture.windowed == "pattern":
        return layers - layers // int(config.get("sliding_window_pattern") or architecture.window_pattern)
    return layers // 2 if architecture.windowed == "half" else layers


def _with_small_parameters(model: Transformer, architecture: Architecture, config: Config) -> Transformer:
    """Norms, biases and what else lies beside the matrices: they cost memory, and no time to speak of."""
    return replace(
        model,
        layer_vectors_given=_layer_vectors(model, architecture),
        outer_vectors_given=_outer_vectors(model, architecture, config),
    )


def _norm(model: Transformer, architecture: Architecture) -> int:
    return model.hidden * {"none": 0, "scale": 1, "scale and shift": 2}[architecture.norm]


def _layer_vectors(model: Transformer, architecture: Architecture) -> int:
    total = architecture.norms * _norm(model, architecture)
    total += (model.attention_width + 2 * model.kv_width) * bool(architecture.qkv_bias)
    total += model.hidden * bool(architecture.output_bias)
    total += ((model.ffn_matrices - 1) * model.ffn + model.hidden) * bool(architecture.ffn_bias)
    if architecture.query_key_norm_if and architecture.query_key_norm == "head":
        total += 2 * model.head_dim
    if architecture.query_key_norm_if and architecture.query_key_norm == "every head":
        total += model.attention_width + model.kv_width
    return total


def _outer_vectors(model: Transformer, architecture: Architecture, config: Config) -> int:
    norm = _norm(model, architecture)
    total = norm + norm * architecture.embedding_norm + model.vocab * architecture.head_bias
    if architecture.masked:
        # BERT norms its embedding and not its last layer; its head has a square layer and a norm of its own.
        types = 0 if config["model_type"] == "distilbert" else int(config.get("type_vocab_size", 2))
        total += model.hidden * (model.hidden + 1) + types * model.hidden
    return total
