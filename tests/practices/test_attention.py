"""Attention: found when scores are written out; fused where that gives the same, or switched on again."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from practices.changed import WITHOUT_CPP, run_here, run_with
from practices.evidence import measurement

from vivace.practices.attention import find
from vivace.tune.trials import TrialSettings, run_trial

ROLES = {"matmul": 50.0, "softmax": 15.0, "elementwise": 30.0}
UNFUSED = {"softmax_squares": 4, "unfused_by_torch": 4}
BY_HAND = {"roles": ROLES, "structure": {"softmax_squares": 12}}
OFF = {"flash_sdp": False, "mem_efficient_sdp": False, "cudnn_sdp": True}


def test_found_when_scores_are_written_out():
    found = find(measurement(**BY_HAND))
    assert found is not None
    assert found.exposed_ms == pytest.approx(45.0)
    assert found.why_not is None


def test_what_is_elementwise_elsewhere_is_not_the_attentions():
    """Scaling, mask and dropout take no more than four times what the softmax does: the rest is some other layer's."""
    found = find(
        measurement(roles={"matmul": 40.0, "softmax": 5.0, "elementwise": 50.0}, structure={"softmax_squares": 12})
    )
    assert found is not None
    assert found.exposed_ms == pytest.approx(5.0 + 4 * 5.0)


@pytest.mark.parametrize(
    ("structure", "line"),
    [
        ({"attention_setting": "eager"}, 'attn_implementation="sdpa"'),
        ({"modules": {"attention": 6}}, "need_weights=False"),
    ],
)
def test_the_lines_fit_the_model(structure: dict, line: str):
    found = find(measurement(roles=ROLES, structure={"softmax_squares": 12, **structure}))
    assert found is not None
    assert line in (found.by_hand or "")


def test_kernels_that_the_script_switched_off_can_be_switched_on_from_outside():
    found = find(measurement(**BY_HAND, flags=OFF))
    assert found is not None
    assert found.why_not is None
    assert "enable_flash_sdp(True)" in (found.by_hand or "")


@pytest.mark.parametrize(
    "present",
    [
        {"roles": ROLES, "structure": {"softmax_squares": 0}},
        {"roles": ROLES, "structure": {"attention": {"scaled_dot_product_flash_attention": 12}, "softmax_squares": 1}},
        {**BY_HAND, "roles": {"matmul": 95.0, "softmax": 0.2, "elementwise": 20.0}},  # short sequences
        {"roles": ROLES, "flags": OFF},  # switched off, but the model has no attention
        # torch's own attention with dropout: a CPU has no fused kernel for it
        {"roles": {**ROLES, "other": 20.0}, "structure": UNFUSED, "on_gpu": False},
    ],
)
def test_not_found_when_present_or_of_no_use(present: dict):
    assert find(measurement(**present)) is None


SCRIPT = """
import json, torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
LINE
class Watch(TorchDispatchMode):
    seen = set()
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.add(func._overloadpacket.__name__)
        return func(*args, **(kwargs or {}))
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)
    def forward(self, x):
        q, k, v = self.qkv(x).view(2, 64, 3, 2, 8).permute(2, 0, 3, 1, 4)
        return ATTENTION
model = Net()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(40):
    with Watch() if step == 0 and WATCH else torch.enable_grad():
        loss = model(torch.ones(2, 64, 16)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(json.dumps(sorted(name for name in Watch.seen if "flash" in name)))
"""
FUSED = "nn.functional.scaled_dot_product_attention(q, k, v)"


def script(line: str, attention: str = FUSED, watch: bool = True) -> str:
    return SCRIPT.replace("LINE", line).replace("ATTENTION", attention).replace("WATCH", str(watch))


def test_the_kernels_are_on_again(tmp_path: Path):
    off = script("torch.backends.cuda.enable_flash_sdp(False)")
    assert run_with(off, [], tmp_path / "plain").printed == []
    done = run_with(off, ["attention"], tmp_path / "changed")
    assert done.told == {"attention": "applied: attention: flash kernels on"}
    assert done.printed == ["_scaled_dot_product_flash_attention_for_cpu"]


def test_where_nothing_is_off_it_says_so(tmp_path: Path):
    done = run_with(script(""), ["attention"], tmp_path)
    assert done.told["attention"] == "Net computes no softmax: it has no attention by hand"


BY_HAND_SCRIPT = """
import json, math, torch
from torch import nn
from torch.nn import functional as F
torch.manual_seed(0)
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.drop = nn.Linear(16, 48), nn.Dropout(DROP)
        self.register_buffer("bias", torch.tril(torch.ones(32, 32)).view(1, 1, 32, 32))
    def forward(self, x):
        B, T, C = x.size()
        q, k, v = (t.view(B, T, 2, C // 2).transpose(1, 2) for t in self.qkv(x).split(C, dim=2))
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
        att = self.drop(F.softmax(att, dim=-1))
        KEEP
        return (att @ v).transpose(1, 2).contiguous().view(B, T, C)
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(50, 16), nn.Linear(16, 50)
        self.blocks = nn.ModuleList([Attention() for _ in range(3)])
    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)
model = Model()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
losses = []
for step in range(6):
    tokens = torch.randint(0, 50, (4, 20 if step % 2 else 24))
    loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
model.eval()
losses.append(model(tokens).sum().item())
print(json.dumps([losses, sorted(model.state_dict())]))
"""


@pytest.mark.parametrize("with_also", [[], ["compile"]], ids=["alone", "compiled"])
def test_attention_by_hand_is_fused(with_also: list[str], tmp_path: Path):
    text = (WITHOUT_CPP if with_also else "") + BY_HAND_SCRIPT.replace("DROP", "0.0").replace("KEEP", "")
    losses, names = run_here(text)
    done = run_with(text, ["attention", *with_also], tmp_path)
    assert done.told["attention"] == "applied: attention by hand through scaled_dot_product_attention (causal)"
    assert done.printed[0] == pytest.approx(losses, rel=1e-4)
    assert done.printed[1] == names


def test_weights_that_a_block_returns_and_the_model_drops(tmp_path: Path):
    """The block itself cannot be changed; the model as a whole can."""
    text = BY_HAND_SCRIPT.replace("DROP", "0.0").replace("KEEP", "").replace("x = x + block(x)", "x = x + block(x)[0]")
    text = text.replace(
        "return (att @ v).transpose(1, 2).contiguous().view(B, T, C)",
        "return (att @ v).transpose(1, 2).contiguous().view(B, T, C), att",
    )
    done = run_with(text, ["attention"], tmp_path)
    assert done.told["attention"] == "applied: attention by hand through scaled_dot_product_attention (causal)"
    assert done.printed[0] == pytest.approx(run_here(text)[0], rel=1e-4)


def test_attention_whose_weights_the_script_keeps_is_left(tmp_path: Path):
    text = BY_HAND_SCRIPT.replace("DROP", "0.1").replace("KEEP", "self.seen = att")
    done = run_with(text, ["attention"], tmp_path)
    assert done.told["attention"] == (
        "attention by hand is left as it is: the scores or the weights of its attention are used elsewhere"
    )
    assert done.printed == run_here(text)


TRANSFORMERS = """
import json, torch
from transformers import GPT2Config, GPT2LMHeadModel
torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(
    vocab_size=64, n_positions=64, n_embd=16, n_layer=3, n_head=2, bos_token_id=0, eos_token_id=0,
    attn_implementation="eager", resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
losses = []
for _ in range(3):
    tokens = torch.randint(0, 64, (4, 48))
    optimizer.zero_grad()
    loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(json.dumps([model.config._attn_implementation, losses, list(model.state_dict())]))
"""


@pytest.mark.skipif(find_spec("transformers") is None, reason="transformers is not installed")
def test_an_eager_transformers_model_uses_sdpa(tmp_path: Path):
    eager, losses, names = run_with(TRANSFORMERS, [], tmp_path / "plain").printed
    done = run_with(TRANSFORMERS, ["attention"], tmp_path / "changed")
    assert done.told == {"attention": "applied: attention: sdpa instead of eager"}
    assert (eager, done.printed[0]) == ("eager", "sdpa")
    assert done.printed[1] == pytest.approx(losses, rel=1e-4)
    assert done.printed[2] == names


@pytest.mark.parametrize(
    ("line", "attention", "squares", "fused", "flash"),
    [
        ("", "(q @ k.transpose(-2, -1) / 8 ** 0.5).softmax(-1) @ v", 1, 0, True),
        ("", FUSED, 0, 1, True),
        ("torch.backends.cuda.enable_flash_sdp(False)", FUSED, 1, 0, False),
    ],
)
@pytest.mark.usefixtures("forked_scripts")
def test_a_measurement_tells_them_apart(line, attention, squares, fused, flash, tmp_path: Path):
    path = tmp_path / "train.py"
    path.write_text(script(line, attention, watch=False))
    settings = TrialSettings(steps=3, warmup_steps=3, evidence=True)
    trial = run_trial([sys.executable, str(path)], [], tmp_path / "trial", settings, lambda *_: None, lambda _: None)
    assert trial.outcome == "ok", trial.message
    structure = trial.measurement.structure
    assert structure.softmax_squares == squares
    assert structure.unfused_by_torch == (squares if attention == FUSED else 0)
    assert sum(structure.attention.values()) == fused
    assert trial.measurement.origin.flags["flash_sdp"] is flash
