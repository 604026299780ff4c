"""Configs that would be misread as a dense transformer of equal layers: each is refused with what it is.

Told by the config's keys first (a new ``model_type`` with experts is still a mixture of experts), then by
its ``model_type``. Pure; called by ``config_file.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from vivace.errors import UserError
from vivace.hardware.schema import did_you_mean
from vivace.plan.models.architectures import ARCHITECTURES

__all__ = ["refuse_what_is_not_modelled"]

Config = Mapping[str, Any]

EXPERT_COUNTS = (
    "num_local_experts",
    "n_routed_experts",
    "num_experts",
    "moe_num_experts",
    "num_moe_experts",
    "n_experts",
    "num_routed_experts",
)
EXPERT_WORDS = ("moe_intermediate_size", "moe_topk", "moe_top_k", "moe_layer_freq", "expert_capacity")
STATE_SPACE_KEYS = ("ssm_cfg", "ssm_state_size", "state_size", "mamba_d_state", "time_mix_inner_dim", "lru_width")
RECURRENT_LAYERS = ("mamba", "mamba2", "linear_attention", "recurrent", "conv", "ssm")
LATENT_KEYS = ("kv_lora_rank", "q_lora_rank")
IMAGE_KEYS = ("vision_config", "patch_size", "num_channels", "image_size", "audio_config")
TASKS = ("ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering", "ForMultipleChoice")

DENSE_HINT = "for a lower bound of its time, plan a dense model of its active size with --layers, --hidden, --heads, …"
SIZES_HINT = "give the sizes of a dense transformer with --layers, --hidden, --heads, --kv-heads, --ffn, --vocab"


def refuse_what_is_not_modelled(config: Config, source: str) -> None:
    """Raise a ``UserError`` that says what the config describes, unless the planner models it."""
    _refuse_adapter(config, source)
    _refuse_experts(config, source)
    _refuse_encoder_decoder(config, source)
    _refuse_state_space(config, source)
    _refuse_latent_attention(config, source)
    _refuse_images(config, source)
    _refuse_tasks(config, source)
    _refuse_type(config, source)


def _nested(config: Config) -> Iterator[tuple[str, Any]]:
    """Keys of the config and of the tables inside it (DBRX keeps its experts in ``ffn_config``)."""
    for key, value in config.items():
        yield key, value
        if isinstance(value, Mapping):
            yield from value.items()


def _refuse_adapter(config: Config, source: str) -> None:
    if config.get("peft_type"):
        raise UserError(
            f"{source} is the config of a {config['peft_type']} adapter, not of a model",
            hint="vivace plan models full training; give the config.json of the base model",
        )


def _refuse_experts(config: Config, source: str) -> None:
    for key, value in _nested(config):
        experts = _is_number(value) and value > 1 if key in EXPERT_COUNTS else key in EXPERT_WORDS and bool(value)
        if experts:
            raise UserError(
                f"{source} describes a mixture of experts ({key} = {value}), and vivace plan models dense "
                "transformers only",
                hint=DENSE_HINT,
            )


def _refuse_encoder_decoder(config: Config, source: str) -> None:
    key = next((key for key in ("is_encoder_decoder", "num_decoder_layers", "decoder_layers") if config.get(key)), None)
    if key is not None:
        raise UserError(
            f"{source} describes an encoder-decoder model ({key} = {config[key]}), and vivace plan models one "
            "stack of equal layers",
            hint=SIZES_HINT,
        )


def _refuse_state_space(config: Config, source: str) -> None:
    key = next((key for key, value in _nested(config) if key in STATE_SPACE_KEYS and value), None)
    kinds = config.get("layer_types") or config.get("layers_block_type") or config.get("block_types") or ()
    recurrent = next((str(kind) for kind in kinds if str(kind) in RECURRENT_LAYERS), None)
    if key is not None or recurrent is not None:
        raise UserError(
            f"{source} describes a model with state-space or recurrent layers ({key or recurrent}), and vivace plan "
            "models attention layers only",
            hint=SIZES_HINT,
        )


def _refuse_latent_attention(config: Config, source: str) -> None:
    key = next((key for key, value in _nested(config) if key in LATENT_KEYS and value), None)
    if key is not None:
        raise UserError(
            f"{source} describes multi-head latent attention ({key}), which vivace plan does not model",
            hint=SIZES_HINT,
        )


def _refuse_images(config: Config, source: str) -> None:
    if "text_config" in config or "vision_config" in config or "audio_config" in config:
        raise UserError(
            f"{source} describes a model of several parts (text and images or sound), and vivace plan models text only",
            hint="save its text_config as a config.json of its own to plan that part",
        )
    key = next((key for key in (*IMAGE_KEYS, "architecture") if config.get(key)), None)
    if key is not None:
        raise UserError(
            f"{source} describes an image model ({key} = {config[key]}), and vivace plan reads configs of language "
            "models only",
            hint="plan an image model by its name (vivace plan models lists them) or as file.py:function",
        )


def _refuse_tasks(config: Config, source: str) -> None:
    named = config.get("architectures") or ()
    task = next((str(name) for name in named if str(name).endswith(TASKS)), None)
    if task is not None:
        raise UserError(
            f"{source} describes a {task}, and vivace plan models the training of language models",
            hint="remove the key architectures to plan the language model that it was made from",
        )


def _refuse_type(config: Config, source: str) -> None:
    kind = config.get("model_type")
    if not kind:
        raise UserError(
            f"{source} has no model_type, so its layers are not known",
            hint=f"add model_type (for example llama or gpt2), or {SIZES_HINT}",
        )
    if kind not in ARCHITECTURES:
        near = did_you_mean(str(kind), ARCHITECTURES) or f"known: {', '.join(sorted(ARCHITECTURES))}"
        raise UserError(f"{source} is of model_type {kind!r}, which vivace plan does not know", hint=near)
    every = dict(_nested(config))
    for key, value in ARCHITECTURES[kind].must_be:
        if every.get(key) not in (None, value):
            raise UserError(
                f"{source} has {key} = {every[key]}, which vivace plan does not model for {kind}", hint=SIZES_HINT
            )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
