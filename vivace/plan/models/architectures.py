"""The architectures of Hugging Face configs that the planner can count: what each ``model_type`` implies
that its ``config.json`` does not say (gated or not, which norms, which biases, tied or not).

Data only. Every entry gives the parameter count that ``transformers`` counts for the published models
(tests/plan/models/test_configs.py). An architecture that is not here is refused, never guessed: ``refusals.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from vivace.plan.models.transformer import Positions

__all__ = ["ARCHITECTURES", "Architecture", "Key"]

Norm = Literal["scale", "scale and shift", "none"]
QueryKeyNorm = Literal["none", "head", "every head"]
Config = Mapping[str, Any]


@dataclass(frozen=True)
class Key:
    """A yes or no that the config itself answers; ``default`` is what ``transformers`` takes otherwise."""

    name: str
    default: bool = False
    negated: bool = False

    def read(self, config: Config) -> bool:
        value = config.get(self.name)
        return bool(self.default if value is None else value) != self.negated


Flag = bool | Key


@dataclass(frozen=True)
class Architecture:
    gated: bool
    norm: Norm
    tied: bool
    """When the config says nothing about ``tie_word_embeddings``."""
    positions: Positions
    norms: int = 2
    """Per layer, those of queries and keys apart."""
    qkv_bias: Flag = False
    output_bias: Flag = False
    """Of the attention's output projection."""
    ffn_bias: Flag = False
    head_bias: bool = False
    """Of the output layer."""
    query_key_norm: QueryKeyNorm = "none"
    """One scale for a head size, or one for every head of queries and keys."""
    query_key_norm_if: Flag = True
    embedding_norm: bool = False
    masked: bool = False
    """An encoder with BERT's masked-word head: a square layer and a norm before the output matrix."""
    dropout: bool = False
    """When the config names no dropout."""
    position_offset: int = 0
    """Learned positions beyond ``max_position_embeddings``."""
    position_reserve: int = 0
    """Learned positions that no token uses (RoBERTa counts from its padding index)."""
    windowed: Literal["never", "all", "if used", "half", "pattern"] = "never"
    """Which layers ``sliding_window`` applies to."""
    window_pattern: int = 0
    """The default of ``sliding_window_pattern``: every so manieth layer sees everything."""
    multi_query: Flag = False
    """All heads share one key and one value, whatever the config says about key-value heads."""
    variant: Callable[[Config], dict[str, Any]] | None = None
    """Facts that depend on several keys at once."""
    must_be: tuple[tuple[str, Any], ...] = ()
    """Keys that change the architecture when they hold anything else."""

    def of(self, config: Config) -> Architecture:
        """This architecture as the config's own switches set it."""
        read: dict[str, Any] = {
            name: value.read(config)
            for name in ("qkv_bias", "output_bias", "ffn_bias", "query_key_norm_if", "multi_query")
            if isinstance(value := getattr(self, name), Key)
        }
        return replace(self, **read, **(self.variant(config) if self.variant else {}))


def _falcon(config: Config) -> dict[str, Any]:
    """Falcon 7B (one norm, multi-query), 40B (two norms, grouped) and RW (sequential, ALiBi) share a type."""
    new = bool(config.get("new_decoder_architecture"))
    parallel = bool(config.get("parallel_attn", True))
    norms = (config.get("num_ln_in_parallel_attn") or 2) if new else (1 if parallel else 2)
    return {
        "norms": int(norms),
        "positions": "alibi" if config.get("alibi") else "rotary",
        "multi_query": not new and bool(config.get("multi_query", True)),
    }


def _stablelm(config: Config) -> dict[str, Any]:
    return {"norms": 1 if config.get("use_parallel_residual") else 2}


LLAMA = Architecture(True, "scale", False, "rotary")
LLAMA_BIASES = replace(
    LLAMA, qkv_bias=Key("attention_bias"), output_bias=Key("attention_bias"), ffn_bias=Key("mlp_bias")
)
GPT2 = Architecture(
    False, "scale and shift", True, "learned", qkv_bias=True, output_bias=True, ffn_bias=True, dropout=True
)
BERT = replace(
    GPT2, embedding_norm=True, masked=True, head_bias=True, must_be=(("position_embedding_type", "absolute"),)
)
GEMMA = replace(LLAMA, tied=True, qkv_bias=Key("attention_bias"), output_bias=Key("attention_bias"))
GPT_J = Architecture(False, "scale and shift", False, "rotary", norms=1, ffn_bias=True, head_bias=True)
COHERE = Architecture(True, "scale", True, "rotary", norms=1, qkv_bias=Key("attention_bias"))

ARCHITECTURES: dict[str, Architecture] = {
    "gpt2": GPT2,
    "gpt_bigcode": replace(GPT2, multi_query=Key("multi_query", True)),
    "gpt_neo": replace(GPT2, qkv_bias=False, windowed="half"),
    "gptj": GPT_J,
    "codegen": GPT_J,
    "gpt_neox": replace(
        GPT2,
        tied=False,
        positions="rotary",
        dropout=False,
        qkv_bias=Key("attention_bias", True),
        output_bias=Key("attention_bias", True),
    ),
    "opt": replace(
        GPT2,
        position_offset=2,
        must_be=(("do_layer_norm_before", True), ("enable_bias", True), ("layer_norm_elementwise_affine", True)),
    ),
    "bloom": replace(GPT2, positions="alibi", embedding_norm=True, dropout=False),
    "falcon": replace(
        GPT2,
        dropout=False,
        positions="rotary",
        qkv_bias=Key("bias"),
        output_bias=Key("bias"),
        ffn_bias=Key("bias"),
        variant=_falcon,
    ),
    "mpt": Architecture(False, "scale", True, "alibi", must_be=(("no_bias", True), ("qk_ln", False))),
    "nemotron": Architecture(
        False,
        "scale and shift",
        False,
        "rotary",
        qkv_bias=Key("attention_bias"),
        output_bias=Key("attention_bias"),
        ffn_bias=Key("mlp_bias"),
    ),
    "starcoder2": replace(
        GPT2,
        positions="rotary",
        dropout=False,
        windowed="all",
        qkv_bias=Key("use_bias", True),
        output_bias=Key("use_bias", True),
        ffn_bias=Key("use_bias", True),
    ),
    "phi": replace(GPT2, tied=False, positions="rotary", norms=1, head_bias=True, must_be=(("qk_layernorm", False),)),
    "llama": LLAMA_BIASES,
    "mistral": replace(LLAMA, windowed="all"),
    "phi3": replace(LLAMA, windowed="all"),
    "qwen2": replace(LLAMA, qkv_bias=True, windowed="if used"),
    "qwen3": replace(
        LLAMA,
        qkv_bias=Key("attention_bias"),
        output_bias=Key("attention_bias"),
        query_key_norm="head",
        windowed="if used",
    ),
    "gemma": GEMMA,
    "gemma2": replace(GEMMA, norms=4, windowed="half"),
    "gemma3_text": replace(GEMMA, norms=4, query_key_norm="head", windowed="pattern", window_pattern=6),
    "granite": LLAMA_BIASES,
    "smollm3": replace(LLAMA_BIASES, tied=True, windowed="if used"),
    "glm": replace(LLAMA, qkv_bias=Key("attention_bias")),
    "olmo": replace(LLAMA, norm="none", qkv_bias=Key("attention_bias"), output_bias=Key("attention_bias")),
    "olmo2": replace(
        LLAMA, query_key_norm="every head", qkv_bias=Key("attention_bias"), output_bias=Key("attention_bias")
    ),
    "stablelm": Architecture(
        True,
        "scale and shift",
        False,
        "rotary",
        qkv_bias=Key("use_qkv_bias"),
        variant=_stablelm,
        must_be=(("qk_layernorm", False),),
    ),
    "cohere": replace(
        COHERE, output_bias=Key("attention_bias"), query_key_norm="every head", query_key_norm_if=Key("use_qk_norm")
    ),
    "cohere2": replace(COHERE, output_bias=Key("attention_bias"), windowed="pattern", window_pattern=4),
    "bert": BERT,
    "roberta": replace(BERT, position_reserve=2),
    "xlm-roberta": replace(BERT, position_reserve=2),
    "camembert": replace(BERT, position_reserve=2),
    "distilbert": BERT,
}
