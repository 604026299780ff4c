"""A row of the 42-column schema as a question for the planner, and what was measured.

Blank cells are filled by stated rules (each is listed in ``notes``); a row that lacks what no rule can
supply is skipped with the reason. Nothing here looks at a measured time or memory to form the prediction.
Called by ``validate``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from math import log2
from typing import cast

from vivace.errors import UserError
from vivace.hardware.catalogue import load_catalogue
from vivace.hardware.specs import GpuSpec
from vivace.plan.facts.frameworks import framework
from vivace.plan.facts.precision import parse_precision
from vivace.plan.grading.blank_cells import blank_micro_batch, blank_recompute, blank_sharding
from vivace.plan.grading.words import (
    attention_kind,
    network_gb_s_per_gpu,
    recompute_kind,
    truth,
    whole,
    zero_stage,
)
from vivace.plan.jobs.job import Attention, TransformerJob
from vivace.plan.machines.cluster import Site, gpu_from_spec, machine_for, machine_from_gpu
from vivace.plan.machines.gpu_names import gpu_from_words
from vivace.plan.models.built_in import family_traits
from vivace.plan.models.transformer import Transformer
from vivace.records.layout import Layout, Recompute

__all__ = ["COMMENTS", "Question", "Skip", "question_from_row", "with_file_context"]

COMMENTS = "_comments"
COUNTS = (
    "layers",
    "hidden",
    "heads",
    "kv_heads",
    "ffn",
    "vocab",
    "seq_len",
    "n_gpus",
    "gpus_per_node",
    "tp",
    "pp",
    "cp",
    "dp",
    "micro_batch",
    "grad_accum",
    "global_batch",
)
# Words in a table that name a site of the catalogue.
SITE_WORDS = {"jean-zay": ("jean zay", "jean-zay", "idris", "bigscience"), "leonardo": ("leonardo", "cineca")}


class Skip(Exception):
    """The row cannot be predicted; the message is the reason."""


@dataclass(frozen=True)
class Question:
    job: TransformerJob
    notes: tuple[str, ...]


def _needed(row: dict[str, str], column: str) -> int:
    value = whole(row.get(column))
    if value is None:
        raise Skip(f"{column} is blank")
    if value < 1:
        raise Skip(f"{column} is {value}")
    return value


def _model(row: dict[str, str], notes: list[str]) -> Transformer:
    layers, hidden = _needed(row, "layers"), _needed(row, "hidden")
    seq_len = _needed(row, "seq_len")
    name = row.get("model") or row.get("run") or f"transformer {layers}x{hidden}"
    traits = family_traits(name)
    heads = whole(row.get("heads"))
    if heads is None:
        heads = max(1, hidden // 128)
        notes.append("heads blank: head size 128")
    ffn = whole(row.get("ffn"))
    if ffn is None:
        ffn = -(-8 * hidden // 3 // 256) * 256 if traits.gated else 4 * hidden
        notes.append(f"ffn blank: {ffn}")
    vocab = whole(row.get("vocab"))
    if vocab is None:
        vocab = traits.vocab
        notes.append(f"vocab blank: {vocab}")
    return Transformer(
        name=name,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=whole(row.get("kv_heads")) or heads,
        ffn=ffn,
        vocab=vocab,
        seq_len=seq_len,
        gated=traits.gated,
        biases=traits.biases,
        tied=traits.tied,
        positions=traits.positions,
        dropout=traits.dropout,
    )


def _gpu(row: dict[str, str]) -> GpuSpec:
    text = row.get("gpu", "")
    if not text:
        raise Skip("gpu is blank")
    spec = gpu_from_words(text, whole(row.get("gpu_mem_gb")))
    if spec is None:
        raise Skip(f"GPU {text!r} is not in the catalogue")
    return spec


def _site(row: dict[str, str], spec: GpuSpec, notes: list[str]) -> Site:
    """The catalogued cluster that the words name, else the GPU with the network that they describe."""
    text = " ".join(row.get(column, "") for column in ("interconnect", "source_ref", "notes", "gpu"))
    comments = row.get(COMMENTS, "").lower()
    per_node = whole(row.get("gpus_per_node"))
    network = network_gb_s_per_gpu(row.get("interconnect"), per_node or 8)
    if network is None:
        for cluster in load_catalogue().clusters.values():
            known = SITE_WORDS.get(cluster.site or "", ())
            # What only the file's comments say is weak: it must agree with the row's node size.
            named = any(word in text.lower() for word in known) or (
                per_node == cluster.gpus_per_node and any(word in comments for word in known)
            )
            if named and _same_product(cluster.gpu, spec.key) and per_node in (None, cluster.gpus_per_node):
                found = machine_for(cluster.key)
                gpu, _ = gpu_from_spec(spec)  # a site can have the same product in two memory sizes
                machine = replace(found.machine, gpu=gpu, gpus_per_node=per_node or found.machine.gpus_per_node)
                notes.append(f"network of {cluster.key}")
                return Site(machine, cluster, found.assumptions)
    if per_node is None:
        per_node = 8
        notes.append("gpus_per_node blank: 8")
    return machine_from_gpu(spec, per_node, network, row.get("interconnect", ""))


def _same_product(left: str, right: str) -> bool:
    return left.split("-")[0] == right.split("-")[0]


def _degrees(row: dict[str, str], gpus: int, notes: list[str]) -> tuple[int, int, int, int]:
    """Tensor, pipeline, context and data sizes, the blank ones inferred from the others."""
    tensor, pipeline, data = (whole(row.get(name)) for name in ("tp", "pp", "dp"))
    context = whole(row.get("cp")) or 1
    if tensor is None and pipeline is None and data:
        product = max(1, gpus // (data * context))
        tensor = next(t for t in (8, 4, 2, 1) if product % t == 0)
        pipeline = product // tensor
        notes.append(f"tp and pp blank: {tensor} x {pipeline} from the data-parallel size")
    tensor, pipeline = tensor or 1, pipeline or 1
    inner = tensor * pipeline * context
    if gpus % inner:
        raise Skip(f"{gpus} GPUs are not a multiple of tp x pp x cp = {inner}")
    # Expert parallelism and hybrid meshes print other "dp"; what divides the GPUs is what the batch is cut
    # by.
    return tensor, pipeline, context, gpus // inner


def _software(row: dict[str, str], zero: int | None, model_parallel: int, attention: str | None, modern: bool) -> str:
    words = " ".join(row.get(c, "") for c in ("dp_kind", "source_ref", "model", "notes", "framework")).lower()
    if not re.search(r"fsdp|deepspeed|megatron|nemo|composer|foundry|bigscience|mpt", words):
        words += " " + row.get(COMMENTS, "").lower()
    kind = row.get("dp_kind", "").lower()
    compiled = truth(row.get("compile")) or bool(re.search(r"inductor|torch\.compile|compiled", row.get("compile", "")))
    if "fsdp" in kind or (zero == 3 and "deepspeed" not in words):
        plain = "composer" if re.search(r"composer|llm-?foundry|mosaic|\bmpt\b", words) else "torch"
        return "compiled" if compiled else plain
    if (
        ("deepspeed" in words and "ddp" not in kind)
        or "bigscience" in words
        or (zero in (1, 2) and "zero" in kind and not modern)
    ):
        return "deepspeed"
    if re.search(r"nemo|megatron-core|mcore|megatron bridge|transformer.?engine", words) or (
        modern and (model_parallel > 1 or zero == 1)
    ):
        return "megatron-core"
    if model_parallel > 1 or "megatron" in words or attention == "fused-softmax":
        return "megatron"
    return "compiled" if compiled else "torch"


def _batch(row: dict[str, str], data: int, notes: list[str]) -> tuple[int, int | None]:
    """Global batch and micro-batch; either may follow from the accumulation count."""
    total, micro = whole(row.get("global_batch")), whole(row.get("micro_batch"))
    if total and "tok" in row.get("global_batch", "").lower():
        sequences = total / _needed(row, "seq_len")
        power = 2 ** round(log2(sequences)) if sequences >= 1 else 1
        # "2M tokens" is mostly 2^21: a power of two close by is what was meant.
        sequences = power if abs(power / sequences - 1) < 0.06 else sequences
        total = max(data, round(sequences / data) * data)
        notes.append(f"global_batch in tokens: {total} sequences")
    steps = whole(row.get("grad_accum"))
    if total is None and micro is not None:
        total = micro * data * (steps or 1)
        notes.append("global_batch blank: micro_batch x dp x grad_accum")
    if total is None:
        raise Skip("global_batch and micro_batch are blank")
    if micro is None and steps:
        micro = max(1, total // (data * steps))
    if micro is not None and micro * data > total:
        if total % data:
            raise Skip(f"global batch {total} is less than micro batch {micro} x dp {data}")
        micro = total // data
        notes.append("micro_batch larger than the rank's share: the share is used")
    if total < data:
        raise Skip(f"global batch {total} is less than the data-parallel size {data}")
    return total, micro


def with_file_context(rows: tuple[dict[str, str], ...], comments: str) -> list[dict[str, str]]:
    """Rows that also carry the file's comments, and the network that other rows of the same GPU name."""
    networks: dict[str, str] = {}
    for row in rows:
        if row.get("interconnect"):
            networks.setdefault(row.get("gpu", ""), row["interconnect"])
    return [
        {
            **row,
            COMMENTS: comments,
            "interconnect": row.get("interconnect") or networks.get(row.get("gpu", ""), ""),
        }
        for row in rows
    ]


def question_from_row(row: dict[str, str]) -> Question:
    """The job of one row, or ``Skip`` with the reason."""
    try:
        _refuse_nonsense(row)
        return _question(row)
    except UserError as error:
        raise Skip(error.message) from None


def _refuse_nonsense(row: dict[str, str]) -> None:
    """Counts that are given must be at least one, and none may be astronomical."""
    for column in COUNTS:
        value = whole(row.get(column))
        if value is not None and not 1 <= value <= 10**9:
            raise Skip(f"{column} is {row[column]}")
    heads, kv_heads, hidden = (whole(row.get(name)) for name in ("heads", "kv_heads", "hidden"))
    if heads and hidden and heads > hidden:
        raise Skip(f"{heads} heads are more than the hidden size {hidden}")
    if heads and kv_heads and kv_heads > heads:
        raise Skip(f"{kv_heads} key-value heads are more than the {heads} heads")
    if (whole(row.get("layers")) or 1) > 10_000:
        raise Skip(f"layers is {row['layers']}")


def _question(row: dict[str, str]) -> Question:
    notes: list[str] = []
    if (whole(row.get("ep")) or 1) > 1 or re.search(r"\bmoe\b|\d+x\d+b|mixtral", row.get("model", "").lower()):
        raise Skip("mixture of experts is not modelled")
    if "cpu" in row.get("notes", "").lower() and "offload=true" in row.get("notes", "").lower().replace(" ", ""):
        raise Skip("offloading to the CPU is not modelled")
    spec = _gpu(row)
    model = _model(row, notes)
    gpus = _needed(row, "n_gpus")
    site = _site(row, spec, notes)
    tensor, pipeline, context, data = _degrees(row, gpus, notes)
    total, micro = _batch(row, data, notes)
    zero = zero_stage(row.get("dp_kind"))
    given_attention = attention_kind(row.get("attention"))
    modern = spec.architecture in ("Hopper", "Blackwell") or given_attention == "flash"
    software = _software(row, zero, tensor * pipeline * context, given_attention, modern)
    facts = framework(software)
    attention = given_attention or facts.default_attention
    if spec.architecture == "Volta" and not given_attention:
        attention = "fused-softmax"
    sequence_parallel = truth(row.get("sp"))
    if sequence_parallel is None:
        sequence_parallel = facts.splits_sequence and tensor > 1
    if zero is None:
        zero = 3 if "fsdp" in row.get("precision", "").lower() else int(facts.shards_optimizer)
    layout = Layout(
        data=data,
        tensor=tensor,
        pipeline=pipeline,
        context=context,
        virtual_stages=max(1, min(whole(row.get("vpp")) or 1, model.layers)),
        sequence_parallel=sequence_parallel,
        zero=zero,
        shard_size=_shard_size(row, zero, site, data),
        micro_batch=micro or 1,
        recompute=cast(Recompute, recompute_kind(row.get("act_ckpt")) or "none"),
    )
    gpu = site.machine.gpu
    precision = parse_precision(row.get("precision", ""), facts.recipe(zero), gpu_has_bf16=gpu.supports("bf16"))
    if precision.cast_bytes and not row.get("precision"):
        precision = replace(precision, cast_bytes=0.0)
        notes.append("precision blank: the layers' stream is 16-bit, as large-model frameworks keep it (no autocast)")
    if not gpu.supports(precision.compute):
        precision = replace(precision, compute="fp16")
        notes.append(f"{gpu.name} has no units for {row.get('precision')}: fp16 rates are used")
    job = TransformerJob(
        model, site.machine, layout, total, model.seq_len, precision, software, cast(Attention, attention)
    )
    if zero_stage(row.get("dp_kind")) is None and zero < 3:
        job = blank_sharding(job, notes)
    if recompute_kind(row.get("act_ckpt")) is None:
        kind = blank_recompute(row, job, notes)
        job = replace(job, layout=replace(job.layout, recompute=kind))
    if micro is None:
        job = blank_micro_batch(job, notes)
    return Question(job, tuple(notes) + site.assumptions)


def _shard_size(row: dict[str, str], zero: int, site: Site, data: int) -> int:
    hybrid = bool(re.search(r"hybrid|hsdp", row.get("dp_kind", "").lower()))
    size = site.machine.gpus_per_node
    return size if hybrid and zero == 3 and data > size and data % size == 0 else 0
