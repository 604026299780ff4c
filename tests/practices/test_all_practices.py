"""Laws that every practice keeps: a file is a practice, it never raises, and it never cries wolf."""

from __future__ import annotations

import importlib
import subprocess
import sys
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from practices.evidence import measurement, spread
from practices.loaders import loader

from vivace.errors import UserError
from vivace.practices.engine.change import Change
from vivace.practices.engine.practice import Family, Practice, RiskName
from vivace.practices.engine.registry import all_practices, get_practice, names, parse_words, split_word
from vivace.records.measurement import Copies, Measurement, Memory, Validation
from vivace.records.structure import Layer, Optimizer, Root, Structure, Wrapper

PRACTICES = pytest.mark.parametrize("practice", all_practices(), ids=lambda practice: practice.name)


@PRACTICES
def test_a_file_is_a_practice_of_its_name_that_says_why_and_how(practice: Practice):
    assert importlib.import_module(f"vivace.practices.{practice.name}").PRACTICE is practice
    assert practice.risk in get_args(RiskName)
    assert practice.family in get_args(Family)
    for text in (practice.title, practice.why, practice.source, practice.by_hand):
        assert text.strip()
    assert len(practice.why) > 80


@PRACTICES
def test_exclusions_name_practices_and_are_mutual(practice: Practice):
    for other in practice.excludes:
        assert other in names()
        assert practice.name in get_practice(other).excludes, f"{other} does not exclude {practice.name}"


@PRACTICES
def test_a_change_can_be_made_from_the_bare_word_or_says_what_it_needs(practice: Practice):
    if practice.change is None:
        assert practice.argument is None, "an argument for nothing"
        return
    change = practice.change(None)
    assert isinstance(change, Change)
    assert (change.done, change.refused) == (None, None)


# -- find: never an error ------------------------------------------------------------------------------------------


def bare(clock: str, **fields) -> Measurement:
    """What a run that ended at once leaves: hardly anything is known."""
    full = measurement(on_gpu=clock == "gpu")
    return Measurement(
        status="partial", steps=0, warmup_steps=0, memory=Memory(), energy=full.energy, origin=full.origin,
        machine=full.machine, clock=clock, **fields,
    )  # fmt: skip


PARTIAL = {
    "nothing, gpu": bare("gpu"),
    "nothing, cpu": bare("host"),
    "no gpu in the machine's record": bare("gpu").model_copy(
        update={"machine": measurement(on_gpu=False).machine, "step_ms": spread(10.0)}
    ),
    "no profile": measurement(profile=None).model_copy(update={"profile": None}),
    "no flops": measurement().model_copy(update={"flops": None}),
    "no phases": measurement().model_copy(update={"phases_ms": {}}),
    "empty roles": measurement(roles={}),
    "step of no length": measurement().model_copy(update={"step_ms": spread(0.0)}),
    "parts without details": measurement(
        structure={
            "wrappers": (Wrapper(name="DataParallel"), Wrapper(name="DistributedDataParallel")),
            "optimizers": (Optimizer(name="SGD"),),
            "debugging": ("something new",),
            "layers": (Layer(kind="matmul", m=1, n=1, k=1, arithmetic="unknown", calls=1, share=1.0),),
        },
        loaders=(loader(batch_size=None, where=None, batches=0, prefetch_factor=None, num_workers=2),),
        profile={"copies": (Copies(kind="?", per_step=0, ms_per_step=0, mib_per_step=0),)},
    ),
}


@PRACTICES
@pytest.mark.parametrize("record", PARTIAL.values(), ids=PARTIAL)
def test_find_never_raises_on_a_partial_record(practice: Practice, record: Measurement):
    found = practice.find(record)
    assert found is None or found.exposed_ms >= 0
    if practice.worth_trying is not None:
        practice.worth_trying(record)


@PRACTICES
@pytest.mark.parametrize("record", ["nothing, gpu", "nothing, cpu"])
def test_nothing_is_found_where_nothing_is_known(practice: Practice, record: str):
    assert practice.find(PARTIAL[record]) is None


# -- find: never a false alarm -------------------------------------------------------------------------------------

TUNED_LOADER = loader(
    num_workers=8, pin_memory=True, persistent_workers=True, prefetch_factor=4, batches=400, wait_ms=4.0, epochs=2,
    epoch_start_ms=8.0,
)  # fmt: skip
PINNED = Copies(kind="Memcpy HtoD (Pinned -> Device)", per_step=2, ms_per_step=3.0, mib_per_step=147.0)


def tuned_vision_on_a_gpu() -> Measurement:
    """ResNet-50 on an H200 as h200-reference.md tunes it: bf16, channels_last, compiled, fused, fed by workers."""
    return measurement(
        step_ms=75.0,
        phases={"loader": 0.1, "copy": 0.1, "forward": 25.0, "backward": 47.0, "optimizer": 1.0, "other": 1.8},
        host_phases_ms={"copy": spread(0.1)},
        roles={"convolution": 52.0, "norm": 10.0, "elementwise": 6.0, "pooling": 2.0, "optimizer": 1.0, "matmul": 1.0},
        profile={"copies": (PINNED,), "busy_share": 0.99, "tensor_core_share": 0.95, "kernels_per_step": 300},
        structure={
            "roots": (Root(name="ResNet", parameters=25_557_032),),
            "modules": {"convolution": 53, "norm": 53, "linear": 1},
            "conv_weights_channels_last": 1.0,
            "optimizers": (Optimizer(name="SGD", fused=True, has_fused=True, tensors=161, device="cuda"),),
            "autocast": "bfloat16",
            "allocator": "expandable_segments:True",
            "layers": (
                _layer("convolution", 256 * 112 * 112, 64, 147, 0.03),
                _layer("convolution", 256 * 56 * 56, 64, 576, 0.3),
                _layer("convolution", 256 * 14 * 14, 256, 2304, 0.66),
                _layer("matmul", 256, 1000, 2048, 0.01),
            ),
        },
        flags={"cudnn_benchmark": True, "float32_matmul_precision": "high", "compiled": True},
        loaders=(TUNED_LOADER,),
        validation=Validation(total_ms=900.0, batches=20, runs=1),
        series_ms={"loader": (0.1,) * 30, "step": (75.0,) * 30},
        parameters=25_557_032,
        trainable_parameters=25_557_032,
        input_shapes=1,
    )


def tuned_language_on_a_gpu() -> Measurement:
    """A GPT over two ranks: bf16, flash attention, compiled, padded vocabulary, DDP with bucket views."""
    one = tuned_vision_on_a_gpu()
    structure = Structure(
        roots=(Root(name="GPT", parameters=124_000_000),),
        modules={"linear": 49, "norm": 25, "embedding": 2},
        optimizers=(Optimizer(name="AdamW", fused=True, has_fused=True, tensors=148, device="cuda"),),
        wrappers=(
            Wrapper(
                name="DistributedDataParallel",
                options={"find_unused_parameters": False, "gradient_as_bucket_view": True, "static_graph": False},
            ),
        ),
        autocast="bfloat16",
        allocator="expandable_segments:True",
        attention={"scaled_dot_product_flash_attention": 12},
        repeated_blocks={"Block": 12},
        padding_share=0.0,
        layers=(
            _layer("matmul", 16384, 3072, 768, 0.3),
            _layer("matmul", 16384, 768, 3072, 0.3),
            _layer("matmul", 16384, 50304, 768, 0.4),
        ),
    )
    profile = one.profile.model_copy(
        update={
            "roles_ms": {"matmul": 55.0, "attention": 9.0, "elementwise": 6.0, "norm": 2.0, "softmax": 1.0},
            "communication_ms_per_step": 4.0,
            "communication_exposed_ms_per_step": 0.3,
        }
    )
    return one.model_copy(update={"structure": structure, "profile": profile, "imbalance_ms": 0.4})


def tuned_on_a_cpu() -> Measurement:
    """A small network on a CPU without 16-bit units: fp32, compiled, all cores at work."""
    return measurement(
        on_gpu=False,
        phases={"loader": 0.2},
        roles={"matmul": 85.0, "elementwise": 3.0},
        structure={
            "modules": {"linear": 6},
            "optimizers": (Optimizer(name="AdamW", fused=True, has_fused=True, tensors=12, device="cpu"),),
            "threads": 8,
        },
        flags={"compiled": True},
        loaders=(TUNED_LOADER.model_copy(update={"pin_memory": False}),),
        series_ms={"loader": (0.2,) * 30, "step": (100.0,) * 30},
    )


def _layer(kind: str, m: int, n: int, k: int, share: float) -> Layer:
    return Layer(kind=kind, m=m, n=n, k=k, arithmetic="bf16", calls=1, share=share)


@PRACTICES
@pytest.mark.parametrize("tuned", [tuned_vision_on_a_gpu, tuned_language_on_a_gpu, tuned_on_a_cpu])
def test_nothing_is_found_in_a_well_tuned_job(practice: Practice, tuned):
    found = practice.find(tuned())
    assert found is None, f"false alarm: {found.says}"


# -- words ---------------------------------------------------------------------------------------------------------

APPLICABLE = [practice.name for practice in all_practices() if practice.change is not None]


@given(st.lists(st.sampled_from(APPLICABLE), unique=True, max_size=6))
def test_words_come_back_in_the_order_of_application_and_parse_again(chosen: list[str]):
    if any(other in chosen for name in chosen for other in get_practice(name).excludes):
        with pytest.raises(UserError, match="exclude each other"):
            parse_words(",".join(chosen))
        return
    words = parse_words(",".join(chosen))
    assert {split_word(word)[0] for word in words} == set(chosen)
    assert parse_words(words) == words
    orders = [get_practice(split_word(word)[0]).order for word in words]
    assert orders == sorted(orders)


def test_casts_come_before_checkpointing_and_compile_comes_last():
    words = parse_words("compile,checkpointing=0.5,fp8,bf16,channels_last,expandable_segments,fused_optimizer")
    assert words[-5:] == ("channels_last", "bf16", "fp8", "checkpointing=0.5", "compile")


def test_an_argument_survives_the_round_trip():
    assert parse_words("compile = reduce-overhead, workers=4,pin-memory") == (
        "workers=4", "pin_memory", "compile=reduce-overhead",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        ("chanels_last", "there is no practice named 'chanels_last'", "did you mean channels_last?"),
        ("xyzzy", "there is no practice named 'xyzzy'", "`vivace practices` lists them"),
        ("no_syncs", "no_syncs cannot be applied from outside", "`vivace practices no_syncs` shows the lines"),
        ("tf32=yes", "tf32 takes no argument", None),
        ("workers=many", "'many' is not a number of workers", "workers=N"),
        ("workers=2,workers=4", "asked for twice", None),
    ],
)
def test_wrong_words_are_explained(words: str, message: str, hint: str | None):
    with pytest.raises(UserError) as error:
        parse_words(words)
    assert message in error.value.message
    assert (hint or "") in (error.value.hint or "")


# -- in the user's process -----------------------------------------------------------------------------------------


def test_practices_need_torch_and_the_standard_library_only():
    code = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pydantic", "rich", "typer", "psutil", "jinja2", "matplotlib"):
            raise ImportError(f"{name} is not there in the user's environment")
sys.meta_path.insert(0, Blocked())
from vivace.practices.engine import entry, registry
for practice in registry.all_practices():
    if practice.change is not None:
        practice.change(None)
print(len(registry.all_practices()))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == len(names())
