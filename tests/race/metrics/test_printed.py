"""Literal lines of public scripts, and what they say: name, value, step, epoch."""

# ruff: noqa: E501 (lines as they are printed)

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.race.metrics.columns import Columns
from vivace.race.metrics.names import MetricName
from vivace.race.metrics.printed import parse_line

# (line, {a name that a user may write: value}, step, epoch)
LINES = [
    # pytorch/examples, mnist
    ("Test set: Average loss: 0.0563, Accuracy: 9812/10000 (98%)", {"test loss": 0.0563, "test accuracy": 0.9812}, None, None),
    ("Train Epoch: 1 [640/60000 (1%)]\tLoss: 0.321456", {"train loss": 0.321456}, 640, 1),
    # pytorch/examples, imagenet
    (
        "Epoch: [0][ 10/5005]\tTime  0.512 ( 0.734)\tData  0.001 ( 0.120)\tLoss 6.9423e+00 (7.0121e+00)\t"
        "Acc@1   0.39 (  0.10)\tAcc@5   1.17 (  0.50)",
        {"loss": 7.0121, "acc1": 0.10, "acc5": 0.50}, 10, 0,
    ),
    ("Test: [  0/196]\tTime  3.4 (  3.4)\tLoss 1.2e+00 (1.3e+00)\tAcc@1  76.10 ( 75.02)", {"test acc1": 75.02}, None, None),
    ("*   Acc@1 76.130 Acc@5 92.862", {"acc1": 76.13, "acc5": 92.862}, None, None),
    # pytorch/examples, word_language_model
    ("| end of epoch   1 | time: 12.03s | valid loss  5.51 | valid ppl   246.91", {"val loss": 5.51, "val ppl": 246.91}, None, 1),
    ("| epoch   1 |   200/ 2983 batches | lr 20.00 | ms/batch 12.07 | loss  7.63 | ppl  2066.02", {"loss": 7.63}, 200, 1),
    # pytorch/examples, gcn and gat
    ("Epoch: 0020 (0.0123s) loss_train: 1.9 acc_train: 0.3 loss_val: 1.8 acc_val: 0.41", {"val acc": 0.41, "train loss": 1.9}, None, 20),
    # pytorch/examples, vae, gcn's end, minGPT-ddp
    ("====> Test set loss: 105.5312", {"test loss": 105.5312}, None, None),
    ("====> Epoch: 3 Average loss: 110.2", {"loss": 110.2}, None, 3),
    ("Test set results: loss 0.7012 accuracy 0.8150", {"test accuracy": 0.815, "test loss": 0.7012}, None, None),
    ("[RANK0] Epoch 2 | Iter 100 | Eval Loss 1.20345", {"val_loss": 1.20345}, 100, 2),
    # PyTorch's tutorials
    ("Accuracy of the network on the 10000 test images: 54 %", {"accuracy": 0.54, "test accuracy": 0.54}, None, None),
    ("[1,  2000] loss: 2.205", {"loss": 2.205}, None, None),
    (" Accuracy: 64.9%, Avg loss: 1.070423", {"accuracy": 0.649, "loss": 1.070423}, None, None),
    ("loss: 2.303494  [   64/60000]", {"loss": 2.303494}, None, None),
    ("epoch 3: train_loss 0.511 - valid_loss 0.402 - accuracy 0.871", {"val_loss": 0.402}, None, 3),
    # torchvision, references/classification
    ("Test:  Acc@1 69.758 Acc@5 89.078", {"test acc1": 69.758, "test acc5": 89.078}, None, None),
    ("Epoch: [3]  [ 10/100]  eta: 0:00:10  lr: 0.1  loss: 2.3012 (2.3054)  acc1: 12.5000 (10.2273)", {"acc1": 10.2273, "loss": 2.3054}, 10, 3),
    # timm
    ("Test: [  48/48]  Time: 0.102 (0.211)  Loss:   0.912 ( 0.861)  Acc@1:  85.613 ( 78.242)  Acc@5:  97.1 ( 94.0)", {"val_acc": None, "test acc1": 78.242}, None, None),
    ("* Acc@1 78.242 (21.758) Acc@5 94.034 (5.966)", {"acc1": 78.242}, None, None),
    # nanoGPT, minGPT, makemore, llm.c, build-nanogpt, modded-nanogpt
    ("step 250: train loss 1.1012, val loss 1.4021", {"val_loss": 1.4021, "train loss": 1.1012}, 250, None),
    ("iter 10: loss 4.2653, time 3000.00ms, mfu 3.10%", {"loss": 4.2653, "mfu": 0.031}, 10, None),
    ("iter_dt 10.20ms; iter 100: train loss 1.01000", {"train loss": 1.01}, 100, None),
    ("train final score: 4980/5000 = 99.60% correct", {"train final": 0.996}, None, None),
    ("step 500 train loss: 2.1 test loss: 2.2", {"test loss": 2.2, "train loss": 2.1}, 500, None),
    ("val loss 5.325", {"val loss": 5.325}, None, None),
    ("validation loss: 10.9511", {"val_loss": 10.9511}, None, None),
    ("HellaSwag accuracy: 2463/10042=0.2453", {"HellaSwag accuracy": 0.24527}, None, None),
    ("step:125/3000 val_loss:6.1234 train_time:12345ms step_avg:98.76ms", {"val_loss": 6.1234}, 125, None),
    # the course's dlojz.py
    ("Epoch [3/10], Step [5/100], Time: 0.123, Loss: 1.2345, Acc:0.8712", {"loss": 1.2345, "acc": 0.8712}, 5, 3),
    ("Epoch [3/10], Validation Loss: 1.2345, Validation Accuracy: 0.8712", {"validation accuracy": 0.8712, "val_loss": 1.2345}, None, 3),
    # transformers, Lightning, Keras, fairseq, Hugging Face accelerate
    ("{'loss': 0.5, 'eval_loss': 1.2, 'eval_accuracy': 0.8, 'epoch': 1.0}", {"val_loss": 1.2, "eval accuracy": 0.8}, None, 1),
    ("│        val_acc            │    0.8710     │", {"val_acc": 0.871}, None, None),
    ("Epoch 3: 100%|██████████| 45/45 [00:10<00:00,  4.50it/s, v_num=0, train_loss=0.1, val_loss=0.2]", {"val_loss": 0.2, "train loss": 0.1}, 45, 3),
    ("1875/1875 [======] - 3s 2ms/step - loss: 0.2 - accuracy: 0.9 - val_loss: 0.3 - val_accuracy: 0.88", {"val_accuracy": 0.88, "val_loss": 0.3}, None, None),
    ("2026-11-18 10:00:00 | INFO | valid | epoch 001 | valid on 'valid' subset | loss 5.1 | nll_loss 3.4 | ppl 10.5", {"val ppl": 10.5}, None, 1),
    ("epoch 2: {'accuracy': 0.86, 'f1': 0.9}", {"accuracy": 0.86, "f1": 0.9}, None, 2),
    # kuangliu/pytorch-cifar, PyTorch Geometric, DGL, Detectron-like
    ("[=====>] | Step: 12ms | Tot: 1s2ms | Loss: 0.512 | Acc: 87.120% (8712/10000) 100/100", {"acc": 0.8712, "loss": 0.512}, None, None),
    ("Epoch: 010, Loss: 0.5, Val: 0.87, Test: 0.85", {"val": 0.87, "test": 0.85, "loss": 0.5}, None, 10),
    ("Epoch 00012 | Loss 1.1021 | Accuracy 0.7820 ", {"accuracy": 0.782}, None, 12),
    # what people print
    ("Validation Accuracy: 0.87", {"val_acc": 0.87}, None, None),
    ("acc1 76.1", {"acc1": 76.1}, None, None),
    ("val loss 3.28", {"val_loss": 3.28}, None, None),
    ('{"val_loss": 1.2, "epoch": 3, "step": 400}', {"val_loss": 1.2}, 400, 3),
    ('{"val": {"loss": 1.2, "acc": 0.5}, "done": true}', {"val loss": 1.2, "val acc": 0.5}, None, None),
    ('>>>JSON {"loss": NaN}', {"loss": math.nan}, None, None),
    ("[2026-01-01 10:00:00,123][train.py:33][INFO] - val_acc=nan", {"val_acc": math.nan}, None, None),
    ("INFO:root:epoch 4 val_loss=-inf lr=1.0e-04", {"val_loss": -math.inf, "lr": 1e-4}, None, 4),
    ("[rank0]: val loss: 1.5e-3", {"val loss": 1.5e-3}, None, None),
    ("loss: tensor(0.3241, grad_fn=<NllLossBackward0>)", {"loss": 0.3241}, None, None),
    ("The accuracy is 0.93", {"accuracy": 0.93}, None, None),
    ("test accuracy after 3 epochs: 0.9", {"test accuracy": 0.9}, None, None),
    ("Top 1 Accuracy = 76.1%", {"top-1 accuracy": 0.761}, None, None),
    ("Epoch 12 done. best val acc 0.88 (epoch 7)", {"best val acc": 0.88}, None, 12),
    ("Epoch 1/5: train loss 1.1, acc 0.5, val loss 1.4, acc 0.6", {"train acc": 0.5, "val acc": 0.6}, None, 1),
    ("reward: -3.5", {"reward": -3.5}, None, None),
    ("bpb=0.98±0.01", {"bpb": 0.98}, None, None),
    ("eval/loss: 0.31 eval/acc: 87.5%", {"val_loss": 0.31, "val_acc": 0.875}, None, None),
    ("valLoss=0.4 trainLoss=0.3", {"val loss": 0.4, "train_loss": 0.3}, None, None),
]  # fmt: skip


@pytest.mark.parametrize(("line", "expected", "step", "epoch"), LINES, ids=[line[:40] for line, *_ in LINES])
def test_a_line_of_a_public_script(line: str, expected: dict[str, float | None], step: int | None, epoch: float | None):
    parsed = parse_line(line)
    for wanted, value in expected.items():
        found = [pair.value for pair in parsed.pairs if MetricName.of(wanted).may_mean(pair.name)]
        if value is None:
            assert not found
        else:
            assert found[0] == pytest.approx(value, rel=1e-4, nan_ok=True), parsed.pairs
    assert (parsed.step, parsed.epoch) == (step, epoch)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "Downloading data: 100%|████| 170M/170M [00:10<00:00, 16.3MB/s]",
        "2026-11-18 10:00:00 starting",
        "number of parameters: 10.65M",
        "torch 2.13.0+cpu, python 3.11.7",
        ">>> Validation complete in: 0:00:12.345678",
        "information 3",
        "Saved to runs/2026-11-18/best.pt",
        "{not json}",
    ],
)
def test_a_line_without_a_metric_has_no_loss_or_accuracy(line: str):
    words = {word for pair in parse_line(line).pairs for word in pair.name.words}
    assert not words & {"loss", "accuracy", "inf", "nan"}


def test_a_printed_table_is_read_by_its_header():
    """airbench94 and fast.ai."""
    ruled, plain = Columns(), Columns()
    assert ruled.read("|  run     |  epoch  |  train_acc  |  val_acc  |  tta_val_acc  |  time_seconds  |") is None
    row = ruled.read("|       1  |     3  |     0.8901  |   0.8712  |               |        3.1004  |")
    assert row is not None
    assert [(pair.text, pair.value) for pair in row.pairs][1:3] == [("train_acc", 0.8901), ("val_acc", 0.8712)]
    assert row.epoch == 3
    assert plain.read("epoch     train_loss  valid_loss  accuracy  time") is None
    row = plain.read("0         0.512301    0.301200    0.912000  00:10")
    assert row is not None
    assert {pair.text: pair.value for pair in row.pairs}["valid_loss"] == 0.3012


@given(st.text(max_size=300))
def test_no_text_breaks_the_parser(text: str):
    for line in text.splitlines():
        for pair in parse_line(line).pairs:
            assert pair.text
            assert pair.name.words


@given(
    st.sampled_from(["val_loss", "Validation Accuracy", "acc1", "eval/loss"]),
    st.floats(allow_nan=False, allow_infinity=False, width=32),
    st.sampled_from([": {}", " = {}", " {}", "={},", "\t{} ", ": [{}]"]),
)
def test_what_is_printed_is_what_is_read(name: str, value: float, style: str):
    (pair,) = parse_line(name + style.format(value)).pairs
    assert pair.value == float(str(value))
    assert pair.name == MetricName.of(name)
