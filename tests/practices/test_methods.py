"""Methods from outside do what a script would do by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from practices.changed import run_here, run_with

from vivace.errors import UserError
from vivace.practices.engine.registry import parse_words

IMAGES = """
import json, torch
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Conv2d(1, 4, 3, padding=1), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(2),
    torch.nn.Flatten(), torch.nn.Linear(16, 3)
)
seen = []
model[0].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach().clone()))
data = TensorDataset(torch.randn(24, 1, 16, 16), torch.arange(24) % 3)
loader, validation = DataLoader(data, batch_size=4, shuffle=True), DataLoader(data, batch_size=8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = torch.nn.CrossEntropyLoss()
losses, rates, validated, drawn = [], [], [], []
optimizer.register_step_pre_hook(lambda o, *_: rates.append(o.param_groups[0]["lr"]))
for epoch in range(2):
    model.train()
    for images, targets in loader:
        optimizer.zero_grad()
        BEFORE
        loss = CRITERION
        loss.backward()
        CLIP
        optimizer.step()
        losses.append(loss.item())
        drawn.append(torch.rand(1).item())
    model.eval()
    with torch.no_grad():
        validated.append(sum(criterion(model(images), targets).item() for images, targets in validation))
saved = {name: value.double().sum().item() for name, value in model.state_dict().items()}
print(json.dumps({
    "losses": losses, "rates": rates, "lr": optimizer.param_groups[0]["lr"], "validated": validated, "saved": saved,
    "sizes": [list(images.shape) for images in seen], "drawn": drawn,
}))
"""


def script(criterion: str = "criterion(model(images), targets)", before: str = "pass", clip: str = "pass") -> str:
    return IMAGES.replace("CRITERION", criterion).replace("BEFORE", before).replace("CLIP", clip)


@pytest.fixture(scope="module")
def plain() -> dict[str, Any]:
    return run_here(script())


def test_clip_equals_clipping_by_hand_and_leaves_a_script_that_clips_alone(
    tmp_path: Path, plain: dict[str, Any]
) -> None:
    line = "torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)"
    changed = run_with(script(), ["clip=0.05"], tmp_path / "changed")
    assert changed.printed["losses"] == pytest.approx(run_here(script(clip=line))["losses"], rel=1e-5)
    assert changed.printed["losses"] != plain["losses"]
    assert "itself" in run_with(script(clip=line), ["clip=0.05"], tmp_path / "both").told["clip=0.05"]


def test_label_smoothing_changes_training_and_not_validation(tmp_path: Path) -> None:
    changed = run_with(script(), ["label_smoothing=0.2"], tmp_path / "changed").printed["losses"]
    by_hand = script("torch.nn.CrossEntropyLoss(label_smoothing=0.2)(model(images), targets)")
    assert changed == pytest.approx(run_here(by_hand)["losses"], rel=1e-5)
    told = run_with(by_hand, ["label_smoothing=0.1"], tmp_path / "both").told["label_smoothing=0.1"]
    assert "smooths its labels by 0.2" in told


def test_ema_validates_and_saves_the_average_and_trains_as_before(tmp_path: Path, plain: dict[str, Any]) -> None:
    changed = run_with(script(), ["ema=0.9"], tmp_path / "changed").printed
    assert changed["losses"] == pytest.approx(plain["losses"], rel=1e-5)
    by_hand = (
        script(clip="averaged = globals().setdefault('averaged', [])")
        .replace(
            "losses.append(loss.item())",
            """losses.append(loss.item())
        if not averaged:
            averaged[:] = [p.detach().clone() for p in model.parameters()]
        decay = min(0.9, len(losses) / (len(losses) + 10))
        averaged[:] = [a + (1 - decay) * (p.detach() - a) for a, p in zip(averaged, model.parameters())]""",
        )
        .replace(
            "    model.eval()\n",
            """    model.eval()
    own = [p.detach().clone() for p in model.parameters()]
    for p, a in zip(model.parameters(), averaged): p.data.copy_(a)
""",
        )
        .replace("saved =", "pass\nsaved =")
        .replace(
            "for images, targets in validation))",
            """for images, targets in validation))
    saved = {name: value.double().sum().item() for name, value in model.state_dict().items()}
    for p, o in zip(model.parameters(), own): p.data.copy_(o)""",
        )
        .replace("pass\nsaved = {", "_ = {")
    )
    reference = run_here(by_hand)
    assert changed["validated"] == pytest.approx(reference["validated"])
    assert changed["saved"] == pytest.approx(reference["saved"])
    assert changed["validated"] != pytest.approx(plain["validated"], rel=1e-5)


def test_a_schedule_sets_the_rate_of_the_step_and_the_script_sees_its_own(tmp_path: Path) -> None:
    changed = run_with(script(), ["schedule=cosine:12:2"], tmp_path / "changed").printed
    by_hand = script().replace("import json, torch", "import json, torch\nfrom vivace.methods.schedule import Cosine")
    made = "schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, Cosine(12, 2))\ncriterion = "
    by_hand = by_hand.replace("criterion = ", made).replace(
        "append(loss.item())", "append(loss.item()); schedule.step()"
    )
    reference = run_here(by_hand)
    assert changed["rates"] == pytest.approx(reference["rates"])
    assert changed["losses"] == pytest.approx(reference["losses"])
    assert changed["lr"] == 0.1
    assert (
        "schedule of its own" in run_with(by_hand, ["schedule=cosine:12"], tmp_path / "both").told["schedule=cosine:12"]
    )


def test_a_larger_batch_comes_with_its_rate_after_a_warm_up(tmp_path: Path) -> None:
    changed = run_with(script(), ["batch=8"], tmp_path / "changed")
    assert [size[0] for size in changed.printed["sizes"][:3]] == [8, 8, 8]
    assert [size[0] for size in changed.printed["sizes"][3:6]] == [8, 8, 8]  # the validation's own
    one_epoch = [0.1 * (1 + (step + 1) / 3) for step in range(3)]
    assert changed.printed["rates"] == pytest.approx([*one_epoch, 0.2, 0.2, 0.2])
    assert changed.printed["lr"] == 0.1
    root = run_with(script(), ["batch=16:sqrt:0"], tmp_path / "root").printed
    assert root["rates"] == pytest.approx([0.2] * 4)
    assert "more than the 24 samples" in run_with(script(), ["batch=32"], tmp_path / "large").told["batch=32"]


@pytest.mark.parametrize("method", ["mixup", "cutmix"])
def test_mixed_images_train_against_both_labels(tmp_path: Path, plain: dict[str, Any], method: str) -> None:
    changed = run_with(script(), [f"{method}=1"], tmp_path / "changed").printed
    assert changed["losses"][0] == pytest.approx(
        plain["losses"][0], rel=1e-5
    )  # the first batch shows that the loss is seen
    assert changed["losses"][1] != pytest.approx(plain["losses"][1], rel=1e-5)
    assert changed["drawn"] == plain["drawn"]  # the script's own random numbers stay
    by_hand = script(
        criterion="criterion(model(images), targets)",
        before=f"if losses: images, targets = {method}(images, targets, 3, 1.0, draws)",
    ).replace(
        "losses, rates",
        f"from vivace.methods.augment import {method}\ndraws = torch.Generator().manual_seed(0)\nlosses, rates",
    )
    reference = run_here(by_hand)
    assert changed["losses"] == pytest.approx(reference["losses"], rel=1e-5)
    assert changed["validated"] == pytest.approx(reference["validated"], rel=1e-4)


def test_mixing_is_refused_where_the_loss_cannot_be_seen(tmp_path: Path, plain: dict[str, Any]) -> None:
    hot = script("torch.nn.functional.mse_loss(model(images), torch.nn.functional.one_hot(targets, 3).float())")
    refused = run_with(hot, ["mixup"], tmp_path / "mse")
    assert "not torch's cross-entropy" in refused.told["mixup"]
    assert refused.printed["losses"] == pytest.approx(run_here(hot)["losses"], rel=1e-5)
    weighted = script("torch.nn.CrossEntropyLoss(weight=torch.ones(3))(model(images), targets)")
    assert "no plain cross-entropy" in run_with(weighted, ["cutmix"], tmp_path / "weighted").told["cutmix"]


def test_small_images_first_and_the_validation_at_full_size(tmp_path: Path) -> None:
    changed = run_with(script(), ["progressive=0.5:8"], tmp_path / "changed")
    training = [size[-1] for size in changed.printed["sizes"] if size[0] == 4]
    assert training == [8, 8, 8, 12, 12, 12, 16, 16, 16, 16, 16, 16]  # to a multiple of 4 pixels
    assert {size[-1] for size in changed.printed["sizes"] if size[0] == 8} == {16}
    fixed = script().replace("torch.nn.AdaptiveAvgPool2d(2)", "torch.nn.AvgPool2d(8)")
    refused = run_with(fixed, ["progressive=0.5:8"], tmp_path / "fixed")
    assert "does not take smaller images" in refused.told["progressive=0.5:8"]
    assert {size[-1] for size in refused.printed["sizes"] if size[0] > 1} == {16}


@pytest.mark.parametrize(
    "word", ["clip=0", "label_smoothing=1", "ema=1.5", "schedule=cosine", "schedule=sine:10", "batch=many", "mixup=0",
             "progressive=2:10", "mixup,cutmix"],
)  # fmt: skip
def test_impossible_arguments_are_refused_before_the_start(word: str) -> None:
    with pytest.raises(UserError):
        parse_words(word)
