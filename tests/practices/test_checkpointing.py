"""Activation checkpointing: advised only where memory is the limit; exact, random numbers and batch norms included."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from practices.changed import WITHOUT_CPP, needs_gpu, run_with
from practices.evidence import measurement

from vivace.errors import UserError
from vivace.practices.checkpointing import find
from vivace.practices.engine.registry import parse_words
from vivace.records.measurement import Flops
from vivace.records.structure import Optimizer
from vivace.tune.trials import TrialSettings, run_trial

BLOCKS = {
    "structure": {"repeated_blocks": {"Block": 12}, "optimizers": (Optimizer(name="AdamW"),)},
    "trainable_parameters": 2**30,  # with AdamW: 16 GiB that do not depend on the batch
}
FULL = {"allocated_peak_gib": 130.0, "reserved_peak_gib": 139.0, "total_gib": 139.8}


@pytest.mark.parametrize(
    ("memory", "reason"),
    [
        (FULL, None),
        ({"allocated_peak_gib": 80.0, "alloc_retries": 3}, None),
        ({"allocated_peak_gib": 80.0, "out_of_memory_errors": 1}, None),
        ({"allocated_peak_gib": 80.0}, "out of memory: tried to allocate 2 GiB"),
    ],
)
def test_found_when_memory_is_the_limit(memory: dict, reason: str | None):
    found = find(measurement(memory=memory, reason=reason, **BLOCKS))
    assert found is not None
    assert found.exposed_ms == 0  # it makes room, not speed
    assert found.evidence["activations_at_most_gib"] == memory["allocated_peak_gib"] - 16


@pytest.mark.parametrize(
    "present",
    [
        {},  # 20 of 140 GiB in use
        {"memory": FULL, "structure": {}},  # no repeated block
        {"memory": FULL, "flops": None, "on_gpu": False},
    ],
)
def test_not_found_when_there_is_room_or_nothing_to_checkpoint(present: dict):
    assert find(measurement(**{**BLOCKS, **present})) is None


def test_not_found_when_the_script_recomputes_already():
    m = measurement(memory=FULL, **BLOCKS)
    again = m.model_copy(update={"flops": Flops(model=3, hardware=4, by_type={"bf16": 4})})
    assert find(again) is None


@pytest.mark.parametrize("wrong", ["0", "1.5", "-1", "some"])
def test_a_wrong_amount_is_the_users_mistake(wrong: str):
    with pytest.raises(UserError, match="neither a number of blocks nor a share"):
        parse_words(f"checkpointing={wrong}")


# Dropout, batch norm, a keyword argument with one of checkpoint's own names, a copy of the model (as EMA makes).
SCRIPT = """
import copy, json, torch
from torch import nn
torch.manual_seed(0)
forwards = 0
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.norm, self.drop = nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.5)
    def forward(self, x, debug=1.0):
        global forwards
        if not torch.compiler.is_compiling():
            forwards += 1
        return x + self.drop(self.norm(self.layer(x)).relu()) * debug
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks, self.head = nn.ModuleList([Block() for _ in range(4)]), nn.Linear(8, 2)
    def forward(self, x):
        for block in self.blocks:
            x = block(x, debug=0.5)
        return self.head(x)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = Net().to(device)
SETUP
optimizer = torch.optim.SGD(model.parameters(), 0.1)
losses = []
for _ in range(3):
    optimizer.zero_grad()
    loss = model(torch.randn(16, 8, device=device)).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
trained = forwards
twin = copy.deepcopy(model).eval()
with torch.no_grad():
    twin(torch.randn(16, 8, device=device))
norm = model.blocks[0].norm
print(json.dumps({
    "losses": losses, "forwards": trained, "validation": forwards - trained, "keys": list(model.state_dict()),
    "batches": norm.num_batches_tracked.item(), "mean": norm.running_mean.tolist(),
    "weight": model.blocks[0].layer.weight[0].tolist(), "modules": [name for name, _ in model.named_modules()],
}))
"""


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict:
    printed = run_with(SCRIPT.replace("SETUP", ""), [], tmp_path_factory.mktemp("plain")).printed
    assert printed["forwards"] == 3 * 4
    return printed


@pytest.mark.parametrize(
    ("word", "blocks"), [("checkpointing", 4), ("checkpointing=0.5", 2), ("checkpointing=1", 1), ("checkpointing=9", 4)]
)
def test_chosen_blocks_run_twice_and_every_number_is_the_same(word: str, blocks: int, plain: dict, tmp_path: Path):
    done = run_with(SCRIPT.replace("SETUP", ""), [word], tmp_path)
    assert done.told == {word: f"applied: {blocks} of 4 blocks (Block)"}
    assert done.printed["forwards"] == 3 * (4 + blocks)
    for name in ("losses", "weight", "mean", "batches", "validation", "keys", "modules"):
        assert done.printed[name] == plain[name], name


def test_with_bf16_the_second_computation_runs_in_bf16_too(plain: dict, tmp_path: Path):
    bf16 = run_with(SCRIPT.replace("SETUP", ""), ["bf16"], tmp_path / "bf16").printed
    both = run_with(SCRIPT.replace("SETUP", ""), ["bf16", "checkpointing"], tmp_path / "both").printed
    assert both["forwards"] == 3 * 8
    assert both["losses"] == bf16["losses"] != plain["losses"]
    assert both["weight"] == bf16["weight"]


@pytest.mark.parametrize("mode", ["compile", "compile=regional"])
def test_with_compile_it_is_compiled_and_counts_each_batch_once(mode: str, plain: dict, tmp_path: Path):
    no_dropout = SCRIPT.replace("nn.Dropout(0.5)", "nn.Identity()").replace("SETUP", "")
    eager = run_with(no_dropout, [], tmp_path / "eager").printed
    done = run_with(WITHOUT_CPP + no_dropout, ["checkpointing", mode], tmp_path / "compiled")
    assert all(text.startswith("applied") for text in done.told.values()), done.told
    assert done.printed["losses"] == pytest.approx(eager["losses"], rel=1e-4)
    assert done.printed["mean"] == pytest.approx(eager["mean"], rel=1e-4)
    assert done.printed["batches"] == 3


@pytest.mark.parametrize(
    ("setup", "why"),
    [
        ("model.blocks[0].gradient_checkpointing = True", "the script already checkpoints this model"),
        ("model = nn.Sequential(nn.Linear(8, 2)).to(device); model.blocks = []", "Sequential repeats no block"),
    ],
)
def test_what_it_cannot_change_it_leaves_alone(setup: str, why: str, tmp_path: Path):
    script = SCRIPT.replace("SETUP", setup).partition("twin =")[0] + "print(json.dumps(forwards))"
    done = run_with(script, ["checkpointing"], tmp_path)
    assert done.told == {"checkpointing": why}


TRANSFORMERS = """
import json, torch
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.models.gpt2.modeling_gpt2 import GPT2MLP
torch.manual_seed(0)
forwards, original = 0, GPT2MLP.forward
def counted(self, x):
    global forwards
    forwards += 1
    return original(self, x)
GPT2MLP.forward = counted
model = GPT2LMHeadModel(GPT2Config(
    vocab_size=64, n_positions=64, n_embd=16, n_layer=3, n_head=2, bos_token_id=0, eos_token_id=0)).train()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
losses = []
for _ in range(3):
    tokens = torch.randint(0, 64, (4, 48))
    optimizer.zero_grad()
    loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(json.dumps([forwards, losses, list(model.state_dict())]))
"""


@pytest.mark.skipif(find_spec("transformers") is None, reason="transformers is not installed")
def test_a_transformers_model_does_it_its_own_way(tmp_path: Path):
    forwards, losses, names = run_with(TRANSFORMERS, [], tmp_path / "plain").printed
    done = run_with(TRANSFORMERS, ["checkpointing"], tmp_path / "changed")
    assert done.told == {"checkpointing": "applied: all blocks of GPT2LMHeadModel, by transformers' own switch"}
    assert done.printed == [2 * forwards, losses, names]


@pytest.mark.usefixtures("forked_scripts")
def test_a_measurement_tells_what_is_computed_twice(tmp_path: Path):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT.replace("SETUP", "").replace("range(3)", "range(40)"))
    settings = TrialSettings(steps=3, warmup_steps=3, evidence=True)
    command = [sys.executable, str(path)]
    trial = run_trial(command, ["checkpointing"], tmp_path / "trial", settings, lambda *_: None, lambda _: None)
    assert trial.measurement is not None, trial.message
    flops = trial.measurement.flops
    assert flops is not None
    # Four blocks of 16 samples through 8 × 8 weights, computed once more. (Each stops when it has what backward needs.)
    assert flops.hardware - flops.model == 4 * 2 * 16 * 8 * 8
    assert trial.measurement.structure.repeated_blocks == {"Block": 4}


MEMORY = """
import json, torch
from torch import nn
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(512, 2048), nn.Linear(2048, 512)
    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(x)))
model = nn.Sequential(*[Block() for _ in range(8)]).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(8192, 512, device="cuda")).square().mean().backward()
    optimizer.step()
print(json.dumps(torch.cuda.max_memory_allocated() / 2**20))
"""


@pytest.mark.gpu
@needs_gpu
def test_it_frees_gpu_memory(tmp_path: Path):
    """Each block keeps 8192 × (2048 + 2048) fp32 values besides its input of 8192 × 512: 128 and 16 MiB."""
    whole = run_with(MEMORY, [], tmp_path / "plain").printed
    freed = whole - run_with(MEMORY, ["checkpointing"], tmp_path / "checkpointed").printed
    assert freed > 6 * 128
