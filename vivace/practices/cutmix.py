"""CutMix: ``cutmix=1.0``. Pastes a rectangle of another training image, and mixes the labels by its area."""

from __future__ import annotations

from typing import Any

from vivace.practices.engine.mixing import Mixing
from vivace.practices.engine.practice import Practice, never_found


class CutMix(Mixing):
    name = "cutmix"
    alpha = 1.0  # Yun et al. 2019

    def mix(self) -> Any:
        from vivace.methods.augment.mixes import cutmix_of

        return cutmix_of


PRACTICE = Practice(
    name="cutmix",
    title="CutMix",
    family="method",
    risk="algorithmic",
    source="Yun et al. 2019. DLO-JZ, data augmentation: a loop over images becomes operations on the batch.",
    why=(
        "A rectangle of each training image comes from another one, and the label has both classes in the shares of "
        "the pixels. The model must recognise parts: often better on new data, and slower at first. One call for the "
        "batch, on the device. Needs a cross-entropy against class numbers."
    ),
    by_hand=(
        "from vivace.methods.augment import cutmix\n"
        "images, targets = cutmix(images, targets, classes=1000)   # then the same CrossEntropyLoss"
    ),
    find=never_found,
    change=CutMix,
    argument="α of the Beta distribution (1.0)",
    excludes=("mixup",),
    other_draws=True,
    order=35,
)
