"""The harms that ``job.py`` can be planted with, by the variable ``PLANTED``. Most are hidden as well as they can be.

Where a harm could be seen in a setting (a learning rate, a module's mode), it is planted behind that setting, so that
only its effect can give it away. ``lr_x1.1`` and ``norm_mode`` are planted in the open, as a faulty practice does it.
"""

import os

import torch
from torch import nn

PLANTED = os.environ.get("PLANTED", "")
_SHIFTED_SHARE = 0.02

_shifts = torch.Generator()
_model = None


def on_model(model):
    global _model
    _model = model
    _shifts.manual_seed(torch.initial_seed())
    if PLANTED == "dropout_lost":
        nn.Dropout.forward = lambda self, x: x  # the module still says that it is training
    if PLANTED == "norm_mode":
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eval()
    if PLANTED == "bf16_weights":
        _round_weights()


def on_loss(loss):
    if PLANTED == "loss_x1.01":
        return loss * 1.01
    return loss


def on_targets(targets, classes):
    if PLANTED != "labels_2%":
        return targets
    chosen = (torch.rand(len(targets), generator=_shifts) < _SHIFTED_SHARE).to(targets.device)
    shifted = targets.roll(1) if classes is None else (targets + 1) % classes
    return torch.where(chosen, shifted, targets)


def clip(model, norm):
    if PLANTED != "clip_lost":
        nn.utils.clip_grad_norm_(model.parameters(), norm)


def after_micro_batch(optimizer, number):
    if PLANTED == "accumulation" and number == 0:  # the first of four is lost
        optimizer.zero_grad()


def step(optimizer):
    parameters = list(_model.parameters())
    if PLANTED == "gradient_x1.01":
        for parameter in parameters:
            parameter.grad.mul_(1.01)
    if PLANTED == "frozen":
        parameters[len(parameters) // 2].grad.zero_()
    if PLANTED == "lr_x1.1":
        for group in optimizer.param_groups:
            group["lr"] *= 1.1
    before = [p.detach().clone() for p in parameters] if PLANTED == "update_x1.1" else []
    optimizer.step()
    if PLANTED == "lr_x1.1":
        for group in optimizer.param_groups:
            group["lr"] /= 1.1
    with torch.no_grad():
        for parameter, old in zip(parameters, before, strict=False):
            parameter.add_(parameter - old, alpha=0.1)
    if PLANTED == "bf16_weights":
        _round_weights()


def _round_weights():
    with torch.no_grad():
        for parameter in _model.parameters():
            parameter.copy_(parameter.to(torch.bfloat16).float())
