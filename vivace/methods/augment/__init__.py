"""Augmentation of whole batches, on the device where they are: no loop over images, no copy to the host.

from vivace.methods.augment import cutmix, flip, mixup, random_resized_crop

images = flip(random_resized_crop(images, 224))
images, targets = mixup(images, targets, classes=1000)       # targets: probabilities, for CrossEntropyLoss
"""

from vivace.methods.augment.crops import flip, random_resized_crop
from vivace.methods.augment.mixes import Mix, cutmix, cutmix_of, mixup, mixup_of, shares_of_classes

__all__ = ["Mix", "cutmix", "cutmix_of", "flip", "mixup", "mixup_of", "random_resized_crop", "shares_of_classes"]
