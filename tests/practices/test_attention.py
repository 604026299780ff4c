"""Attention: found when scores are written out; changed from outside only where the script switched the kernels off."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from practices.changed import run_with
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
    assert found.why_not == "attention is written out in the model: only its author can change it"


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
    assert (found.why_not is None) == ("attention_setting" in structure)


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
    assert done.told["attention"].startswith("no fused attention is switched off")


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
