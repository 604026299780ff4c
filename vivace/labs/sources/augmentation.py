# /// lab
# day = 3
# order = 1
# title = "augmentation, in the workers or on the device"
# goal = "Decide where RandAugment, MixUp and CutMix should run, and write MixUp and CutMix so that labels fit pixels."
# predict = """
# The course concludes: RandAugment, the CPU is enough; MixUp, much better on the GPU; CutMix, turn the loop over images into batch
# operations. Which of the three would you expect to hold on a machine without a GPU? What does a worker send to the training
# process when MixUp runs in it, and what when it does not?"""
# compare = "The bytes that a worker sends, and how the number of operators grows with the batch."
# see = """
# A worker that mixes sends float32 instead of bytes: four times as much. A loop over the images calls operators in proportion to the batch,
# the batched version always the same number; on a GPU each of them is a kernel launch at least. The label of CutMix counts the
# pixels that were pasted, so it fits where a rectangle is cut off at the edge, too."""
# hardware = """
# Bytes and operators are the same everywhere. Times are not: on a CPU the loop may win, because it copies rectangles
# where the batched version writes every pixel; on a GPU launches decide."""
# about_s = 4
# course = ["DA_1", "DA_2", "DA_3"]
# full_needs = ["gpu"]
# without = "Without a GPU the lab counts bytes and operators; the times on a GPU are not shown."
# commands = [
#   "python benchmarks/augment.py --images 128 --size 96 --workers 1",
#   "python benchmarks/augment.py --device cuda --images 512 --size 224 --workers 8        # on a GPU",
# ]
# ///

# %% [markdown]
# ![The operations of RandAugment, crops, MixUp and CutMix](../images/augmentation.png)
#
# First what a worker sends for one batch: images as they are decoded, and images that were mixed in the worker.

# %%
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from vivace.labs import Table, is_small
from vivace.methods.augment.mixes import cutmix_of, mixup_of, shares_of_classes

sizes = (8, 16, 32) if is_small() else (16, 64, 256)
side = 32 if is_small() else 224
draws = torch.Generator().manual_seed(0)
decoded = torch.randint(0, 256, (sizes[-1], 3, side, side), generator=draws, dtype=torch.uint8)

sent = Table("mixup_runs", "sends", "bytes", "times", name="sent")
for where, batch in (("on the device", decoded), ("in the worker", mixup_of(decoded.float(), 0.2, draws).images)):
    sent.add(where, str(batch.dtype).removeprefix("torch."), batch.nbytes, batch.nbytes / decoded.nbytes)
sent.show()

# %% [markdown]
# Then the operators: a counter sees each call. The loop is the one that one writes first.

# %%


class Counter(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.calls += 1
        return function(*args, **(kwargs or {}))


def mixup_loop(images):
    """One image after the other, each with its own share."""
    partner = torch.randperm(len(images))
    return torch.stack([torch.lerp(images[int(partner[i])], images[i], 0.3) for i in range(len(images))])


def cutmix_loop(images):
    mixed, partner = images.clone(), torch.randperm(len(images))
    for i in range(len(images)):
        mixed[i, :, 2:9, 3:8] = images[int(partner[i]), :, 2:9, 3:8]
    return mixed


table = Table("batch", "mixup_loop", "mixup_batch", "cutmix_loop", "cutmix_batch")
for size in sizes:
    images, counts = decoded[:size].float(), []
    for mix in (mixup_loop, mixup_of, cutmix_loop, cutmix_of):
        with Counter() as counter:
            mix(images)
        counts.append(counter.calls)
    table.add(size, *counts)
table.show()
table.picture(
    x="batch", y=["mixup_loop", "mixup_batch", "cutmix_loop", "cutmix_batch"], log_x=True, title="calls of operators"
)

# %% [markdown]
# Do labels fit pixels? Each image is painted with its own number, so pasted pixels can be counted.

# %%
count = 64
painted = torch.arange(count, dtype=torch.float32).view(-1, 1, 1, 1).expand(-1, 3, side, side)
mix = cutmix_of(painted, 1.0, torch.Generator().manual_seed(0))
own = (mix.images == painted).float().mean((1, 2, 3))
labels = shares_of_classes(mix, torch.arange(count), count)
pasted = mix.images != painted
cut_off = (
    pasted[:, 0, 0].any(1) | pasted[:, 0, -1].any(1) | pasted[:, 0, :, 0].any(1) | pasted[:, 0, :, -1].any(1)
).sum()
moved = mix.partner != torch.arange(count)
fits = Table("images", "rectangles_at_an_edge", "largest_error_of_label", "labels_sum_to_1", name="labels")
error = (labels[torch.arange(count), torch.arange(count)] - own)[moved].abs().max().item()
fits.add(count, int(cut_off), error, bool(torch.allclose(labels.sum(1), torch.ones(count))))
fits.show()

# %% [markdown]
# Measured: 128 images of 96 × 96 on a busy CPU, one worker ([table](../../benchmarks/results/augment.csv)); medians of nine rounds, quartiles in brackets:
#
# | | in a worker, image by image | loop over the batch | batch at once |
# |---|---|---|---|
# | no augmentation | 31 ms (21–35) | | |
# | RandAugment, 5 operations | 144 ms (137–175) |  | 325 ms (257–356) |
# | MixUp | 71 ms (56–88) | 22 ms (20–27) | 22 ms (14–23) |
# | CutMix |  | 20 ms (18–29) | 41 ms (38–53) |
#
#
# On a CPU, Pillow in a worker does RandAugment in less than half the time of the batched version, and beside the training instead of inside it: the CPU is enough. MixUp in a worker costs three times the batched one,
# and twice the loader without augmentation: it sends fp32 numbers, four times the bytes. The loop and the batch are equal for MixUp, and for CutMix the loop is twice as *fast*: it copies rectangles, where the batched version writes every pixel. The course vectorises for the GPU, where each step of
# a loop is several kernel launches. The GPU rows have not been run here.
#
# **Why it is right.**
#
# - *RandAugment* has 14 operations. Drawing one for each image and applying each to all images that drew it takes 14 calls for a batch, however large the batch is: no loop over images. Each operation gives Pillow's
#   pixels to the bit ([test](../../tests/methods/augment/test_rand.py)).
# - *MixUp*: λ of one image, 1 − λ of another, and the same shares of the labels, with λ from Beta(α, α) for each image.
# - *CutMix*: a rectangle with area 1 − λ. Its middle is anywhere, so a part may lie outside. The label counts the pixels that were really pasted; a label with the drawn λ would be wrong at every edge.
#   A version that pastes in place, image after image, can paste an image that has a paste in it already.
#
# **Try it.** A whole training with them, and the question that counts:
#
#     vivace train cifar10 --set data.train=train.parquet --set data.val=test.parquet --set augment.randaugment=2 --set augment.cutmix=1.0
#     vivace race --until 'val_accuracy >= 0.9' --seeds 3 --entry 'plain: vivace train … --set seed={seed}' --entry 'mixup: vivace train … --set seed={seed} --set augment.mixup=0.2'
#     vivace race --until 'accuracy >= 0.9' --with mixup=0.2 -- python train.py             # a script of your own, unedited
#
# **Read** [`rand.py`](../../vivace/methods/augment/rand.py), [`mixes.py`](../../vivace/methods/augment/mixes.py) and [`crops.py`](../../vivace/methods/augment/crops.py): each needs torch alone.
