"""The rules for keys whose answer depends on their value: each notes what it means in ``Found`` and says how.

A rule gets what the whole file says (``Asked``), because some keys decide others: a stage without shards offloads
nothing. What is not given has DeepSpeed's own default.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from vivace.records.explained import Answer
from vivace.records.layout import Recompute

__all__ = ["DEFAULT_CLIP", "RULES", "Asked", "Found"]

DEFAULT_CLIP = 1.0
"""DeepSpeed clips so where ``gradient_clipping`` is not given (``GRADIENT_CLIPPING_DEFAULT`` in its constants.py)."""

Said = tuple[Answer, str, str]
Rule = Callable[["Asked", "Found", Any], Said]


@dataclass
class Asked:
    """The values of the file by their dotted keys."""

    values: dict[str, Any]

    def number(self, key: str) -> int | None:
        value = self.values.get(key)
        return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else None

    @property
    def autos(self) -> set[str]:
        return {key for key, value in self.values.items() if value == "auto"}

    @property
    def stage(self) -> int:
        stage = self.values.get("zero_optimization.stage", 0)
        return stage if stage in (1, 2, 3) else 0

    @property
    def batch(self) -> int | None:
        return self.number("train_batch_size")

    @property
    def micro(self) -> int | None:
        return self.number("train_micro_batch_size_per_gpu")

    @property
    def accumulation(self) -> int | None:
        return self.number("gradient_accumulation_steps")

    @property
    def tensor(self) -> int:
        return self.number("tensor_parallel.autotp_size") or self.number("tensor_parallel.tp.tp_size") or 1

    @property
    def sequence(self) -> int:
        return self.number("sequence_parallel_size") or 1


@dataclass
class Found:
    """What the rules came to. ``settings`` are those of ``vivace train``."""

    settings: dict[str, Any] = field(default_factory=dict)
    practices: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    recompute: Recompute = "none"
    shard_size: int = 0

    def set(self, name: str, value: Any, why: str = "") -> Said:
        self.settings[name] = value
        return Answer.TRANSLATED, f"{name}={value}", why


def _setting(name: str, kind: Callable[[Any], Any], why: str = "") -> Rule:
    return lambda _asked, found, value: found.set(name, kind(value), why)


def _stage(asked: Asked, _found: Found, value: Any) -> Said:
    if value not in (0, 1, 2, 3):
        raise ValueError
    ours = {0: "dp… in the layout (DDP)", 1: "fs…,zero1", 2: "fs…,zero2", 3: "fs… (FSDP2)"}[value]
    return Answer.TRANSLATED, ours, "stage 0 replicates, 1 shards the optimizer, 2 gradients too, 3 parameters too"


def _offload(asked: Asked, found: Found, value: Any) -> Said:
    if value in (None, "none", False):
        return Answer.NOT_NEEDED, "", "nothing is offloaded"
    if value not in ("cpu", True):
        return Answer.NOT_SUPPORTED, "", "offload to the CPU's memory only: vivace plan says how many GPUs hold it"
    if not asked.stage:
        return Answer.NOT_NEEDED, "", "stage 0 offloads nothing"
    return found.set("engine.offload", True, "FSDP2 offloads parameters, gradients and optimizer states together")


def _batch(_asked: Asked, _found: Found, value: Any) -> Said:
    return Answer.TRANSLATED, f"global_batch={int(value)}", ""


def _micro(_asked: Asked, _found: Found, value: Any) -> Said:
    return Answer.TRANSLATED, f"mb{int(value)} in the layout", ""


def _accumulation(_asked: Asked, _found: Found, value: Any) -> Said:
    why = "micro-batches follow from the global batch: global batch / (data ranks x mb)"
    return Answer.TRANSLATED, f"{int(value)} micro-batches per rank", why


def _bf16(asked: Asked, found: Found, value: Any) -> Said:
    if not value:
        return Answer.NOT_NEEDED, "", "off"
    found.practices.add("bf16")
    return found.set("engine.precision", "bf16", "weights, states and sums over ranks stay in fp32")


def _fp16(asked: Asked, found: Found, value: Any) -> Said:
    if not value:
        return Answer.NOT_NEEDED, "", "off"
    found.practices.add("fp16")
    found.notes.append("vivace train has bf16 instead of fp16; on GPUs without bf16: vivace run --with fp16")
    return found.set("engine.precision", "bf16", "the same bytes, no loss scaling; `vivace run --with fp16` is fp16")


def _autocast(asked: Asked, found: Found, value: Any) -> Said:
    if not value:
        return Answer.NOT_NEEDED, "", "off"
    half = "float16" in str(asked.values.get("torch_autocast.dtype", "bfloat16")).replace("bfloat16", "")
    return _fp16(asked, found, True) if half else _bf16(asked, found, True)


def _clip(_asked: Asked, found: Found, value: Any) -> Said:
    norm = float(value)
    if norm <= 0:
        return found.set("optim.clip_norm", None, "0 is no clipping")
    found.practices.add(f"clip={norm:g}")
    return found.set("optim.clip_norm", norm, "the norm over all ranks, as in DeepSpeed")


_OPTIMIZERS = {"adam": "adamw", "adamw": "adamw", "sgd": "sgd", "deepspeedcpuadam": "adamw", "fusedadam": "adamw"}
_ONLY_RUN = {"lamb": "lamb", "fusedlamb": "lamb", "lion": "lion", "muon": "muon"}


def _optimizer(asked: Asked, found: Found, value: Any) -> Said:
    name = str(value).lower()
    if name == "adam" and asked.values.get("optimizer.params.adam_w_mode") is False:
        decay = asked.values.get("optimizer.params.weight_decay", 0)
        if decay not in (0, 0.0):
            return Answer.NOT_SUPPORTED, "", "Adam with L2 decay: AdamW decays the weights themselves"
    if name in _OPTIMIZERS:
        ours = _OPTIMIZERS[name]
        found.settings.setdefault("optim.betas", [0.9, 0.999])
        found.settings.setdefault("optim.weight_decay", 0.0)
        why = "DeepSpeed's Adam is AdamW, unless adam_w_mode is false" if name == "adam" else ""
        return found.set("optim.name", ours, why)
    if name in _ONLY_RUN:
        found.practices.add(f"optimizer={_ONLY_RUN[name]}")
        why = "vivace train has adamw and sgd; vivace run replaces the optimizer of a script"
        return Answer.TRANSLATED, f"--with optimizer={_ONLY_RUN[name]}", why
    return Answer.NOT_SUPPORTED, "", "vivace train has adamw and sgd; gradients are not compressed"


def _adam_w_mode(asked: Asked, _found: Found, value: Any) -> Said:
    return Answer.NOT_NEEDED, "", "see optimizer.type"


def _betas(_asked: Asked, found: Found, value: Any) -> Said:
    first, second = (float(one) for one in value)
    return found.set("optim.betas", [first, second])


_SCHEDULES = {"warmuplr": "none", "warmupdecaylr": "linear", "warmupcosinelr": "cosine"}


def _schedule(asked: Asked, found: Found, value: Any) -> Said:
    name = str(value).lower()
    if name == "lrrangetest":
        return Answer.NOT_SUPPORTED, "", "vivace find lr does a range test"
    if name not in _SCHEDULES:
        return Answer.NOT_SUPPORTED, "", "warm-up with linear, cosine or no decay"
    decay = _SCHEDULES[name]
    if "scheduler.params.warmup_num_steps" not in asked.values:
        found.settings["optim.warmup_steps"] = 1000  # DeepSpeed's default
    if name == "warmupdecaylr" and "scheduler.params.warmup_max_lr" not in asked.values:
        found.settings["optim.lr"] = 0.001
    found.settings.setdefault("optim.final_share", 1e-4 if decay == "cosine" else 0.0)
    if asked.values.get("scheduler.params.warmup_type", "log") != "linear":
        found.notes.append("DeepSpeed's warm-up is logarithmic by default (warmup_type); vivace's is linear")
    return found.set("optim.decay", decay)


def _from_lr(_asked: Asked, found: Found, value: Any) -> Said:
    if float(value) == 0:
        return Answer.NOT_NEEDED, "", "the warm-up begins next to 0"
    return Answer.NOT_SUPPORTED, "", "the warm-up begins next to 0"


def _warmup_type(_asked: Asked, _found: Found, value: Any) -> Said:
    if value == "linear":
        return Answer.NOT_NEEDED, "", "the warm-up is linear"
    return Answer.NOT_SUPPORTED, "", "the warm-up is linear"


def _recompute(_asked: Asked, found: Found, value: Any) -> Said:
    if not value:
        return Answer.NOT_NEEDED, "", "off"
    found.recompute = "full"
    found.practices.add("checkpointing")
    why = "with tp, sequence parallelism splits what is kept"
    return Answer.TRANSLATED, "recompute-full in the layout", why


def _tensor(_asked: Asked, _found: Found, value: Any) -> Said:
    size = int(value)
    if size < 2:
        return Answer.NOT_NEEDED, "", "no tensor parallelism"
    return Answer.TRANSLATED, f"tp{size} in the layout", "with sequence and loss parallelism"


def _sequence(_asked: Asked, _found: Found, value: Any) -> Said:
    if int(value) < 2:
        return Answer.NOT_NEEDED, "", "no sequence parallelism"
    why = "DeepSpeed-Ulysses splits heads; ours gathers keys and values"
    return Answer.TRANSLATED, f"cp{int(value)} in the layout", why


def _mics(_asked: Asked, found: Found, value: Any) -> Said:
    if int(value) < 1:
        return Answer.NOT_NEEDED, "", "off"
    found.shard_size = int(value)
    return Answer.TRANSLATED, f"dp…,fs{int(value)} in the layout", "hybrid sharding: replicas of shards"


def _reduced_in(_asked: Asked, _found: Found, value: Any) -> Said:
    if value in (None, "fp32"):
        return Answer.NOT_NEEDED, "", "sums are always in fp32"
    return Answer.NOT_SUPPORTED, "", "sums are always in fp32"


def _all_reduce(_asked: Asked, _found: Found, value: Any) -> Said:
    if str(value).lower() in ("mean", "avg", "average"):
        return Answer.NOT_NEEDED, "", "gradients are averaged"
    return Answer.NOT_SUPPORTED, "", "gradients are averaged"


def _compile(_asked: Asked, found: Found, value: Any) -> Said:
    if not value:
        return Answer.NOT_NEEDED, "", "off"
    found.practices.add("compile")
    return found.set("engine.compile", True, "torch.compile, block by block")


def _print_every(_asked: Asked, found: Found, value: Any) -> Said:
    steps = float(value)
    if not 1 <= steps < 2**31:
        return Answer.NOT_NEEDED, "", "prints nothing"
    return found.set("log_every", int(steps))


def _shown(_asked: Asked, _found: Found, _value: Any) -> Said:
    return Answer.NOT_NEEDED, "", "see the key beside it"


RULES: dict[str, Rule] = {
    "train_batch_size": _batch,
    "train_micro_batch_size_per_gpu": _micro,
    "gradient_accumulation_steps": _accumulation,
    "gradient_clipping": _clip,
    "steps_per_print": _print_every,
    "communication_data_type": _reduced_in,
    "data_types.grad_accum_dtype": _reduced_in,
    "gradient_allreduce_op": _all_reduce,
    "seed": _setting("seed", int),
    "bf16.enabled": _bf16,
    "bfloat16.enabled": _bf16,
    "fp16.enabled": _fp16,
    "torch_autocast.enabled": _autocast,
    "torch_autocast.dtype": _shown,
    "torch_autocast.lower_precision_safe_modules": _shown,
    "zero_optimization.stage": _stage,
    "zero_optimization.offload_optimizer": _offload,
    "zero_optimization.offload_param": _offload,
    "zero_optimization.offload_optimizer.device": _offload,
    "zero_optimization.offload_param.device": _offload,
    "zero_optimization.cpu_offload": _offload,
    "zero_optimization.cpu_offload_params": _offload,
    "zero_optimization.cpu_offload_param": _offload,
    "zero_optimization.mics_shard_size": _mics,
    "optimizer.type": _optimizer,
    "optimizer.params.adam_w_mode": _adam_w_mode,
    "optimizer.params.lr": _setting("optim.lr", float),
    "optimizer.params.betas": _betas,
    "optimizer.params.eps": _setting("optim.eps", float),
    "optimizer.params.weight_decay": _setting("optim.weight_decay", float, "of matrices, not of norms and biases"),
    "optimizer.params.momentum": _setting("optim.momentum", float, "of sgd"),
    "scheduler.type": _schedule,
    "scheduler.params.warmup_min_lr": _from_lr,
    "scheduler.params.warmup_min_ratio": _from_lr,
    "scheduler.params.warmup_max_lr": _setting("optim.lr", float, "the highest rate"),
    "scheduler.params.warmup_num_steps": _setting("optim.warmup_steps", int),
    "scheduler.params.total_num_steps": _setting("steps", int),
    "scheduler.params.cos_min_ratio": _setting("optim.final_share", float),
    "scheduler.params.warmup_type": _warmup_type,
    "scheduler.params.last_batch_iteration": _shown,
    "activation_checkpointing.partition_activations": _recompute,
    "tensor_parallel.autotp_size": _tensor,
    "tensor_parallel.tp.tp_size": _tensor,
    "sequence_parallel_size": _sequence,
    "compile.deepcompile": _compile,
    "compile.enabled": _compile,
}
