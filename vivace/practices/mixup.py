"""MixUp: ``mixup=0.2``. Blends pairs of training images, and their labels."""

from __future__ import annotations

from typing import Any

from vivace.practices.engine.mixing import Mixing
from vivace.practices.engine.practice import Practice, never_found


class MixUp(Mixing):
    name = "mixup"
    alpha = 0.2  # Zhang et al. 2018, for ImageNet

    def mix(self) -> Any:
        from vivace.methods.augment.mixes import mixup_of

        return mixup_of


PRACTICE = Practice(
    name="mixup",
    title="MixUp",
    family="method",
    risk="algorithmic",
    source="Zhang et al. 2018. DLO-JZ, data augmentation: much better on the GPU than in the loader's workers.",
    why=(
        "Each training image is a blend of two, and so is its label. The model learns straight lines between classes: "
        "often better on new data, and slower at first. Blended on the device, a whole batch at once. Training "
        "accuracies that the script prints compare blended images with single labels. Needs a cross-entropy against "
        "class numbers."
    ),
    by_hand=(
        "from vivace.methods.augment import mixup\n"
        "images, targets = mixup(images, targets, classes=1000, alpha=0.2)   # then the same CrossEntropyLoss"
    ),
    find=never_found,
    change=MixUp,
    argument="α of the Beta distribution (0.2)",
    excludes=("cutmix",),
    other_draws=True,
    order=35,
)
