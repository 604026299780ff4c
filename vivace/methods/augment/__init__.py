"""Augmentation of whole batches, on the device where they are: no loop over images, no copy to the host.

from vivace.methods.augment import cutmix, flip, mixup, randaugment, random_resized_crop

images = flip(random_resized_crop(images, 224))
images, targets = mixup(images, targets, classes=1000)       # targets: probabilities, for CrossEntropyLoss
"""

from vivace.methods.augment.crops import crop_boxes, flip, random_resized_crop, random_shift
from vivace.methods.augment.mixes import Mix, cutmix, cutmix_of, mixup, mixup_of, shares_of_classes
from vivace.methods.augment.rand import randaugment

__all__ = [
    "Mix", "crop_boxes", "cutmix", "cutmix_of", "flip", "mixup", "mixup_of", "randaugment", "random_resized_crop",
    "random_shift", "shares_of_classes",
]  # fmt: skip
