"""Draws docs/images/augmentation.png: the operations of RandAugment, MixUp and CutMix on two painted pictures.

python benchmarks/picture_augment.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw

from vivace.methods.augment import cutmix, mixup, random_resized_crop, random_shift
from vivace.methods.augment.rand import OPERATIONS, apply_operation, strength_of

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "augmentation.png"
SIZE, COLUMNS, LABEL, MAGNITUDE = 96, 6, 14, 20


def painted(sky: tuple[int, int, int], round_one: bool) -> torch.Tensor:
    rows = np.linspace(1.0, 0.55, SIZE)[:, None, None] * np.array(sky)[None, None]
    image = Image.fromarray(np.broadcast_to(rows, (SIZE, SIZE, 3)).astype(np.uint8))
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, 66, SIZE, SIZE), fill=(70, 120, 60))
    if round_one:
        draw.ellipse((30, 22, 74, 66), fill=(230, 180, 60), outline=(60, 40, 20), width=3)
        draw.ellipse((42, 34, 50, 42), fill=(30, 30, 30))
    else:
        draw.polygon([(16, 70), (48, 14), (80, 70)], fill=(150, 60, 50), outline=(40, 20, 20))
        draw.rectangle((42, 50, 54, 70), fill=(60, 60, 90))
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def pictures() -> dict[str, torch.Tensor]:
    one, other = painted((140, 180, 230), True), painted((210, 190, 170), False)
    found = {"as it is": one}
    for name in OPERATIONS:
        if name != "identity":
            strength = torch.tensor([strength_of(name, MAGNITUDE, SIZE, SIZE)])
            found[name] = apply_operation(one.unsqueeze(0), name, strength)[0]
    pair, labels = torch.stack([one, other]).float(), torch.tensor([0, 1])

    def mixed(mix, alpha: float) -> torch.Tensor:
        """The first seed whose draw shows both pictures."""
        for seed in range(100):
            images, shares = mix(pair, labels, 2, alpha, torch.Generator().manual_seed(seed))
            if 0.35 < float(shares[0, 0]) < 0.75:
                return images[0].clamp(0, 255).to(torch.uint8)
        raise AssertionError("no draw with both pictures")

    draws = torch.Generator().manual_seed(3)
    return {
        **found,
        "resized crop": random_resized_crop(one.unsqueeze(0), SIZE, draws=draws)[0],
        "shift by 16": random_shift(one.unsqueeze(0), 16, draws)[0],
        "MixUp": mixed(mixup, 8.0),
        "CutMix": mixed(cutmix, 1.0),
    }


def main() -> None:
    found = pictures()
    lines = -(-len(found) // COLUMNS)
    sheet = Image.new("RGB", (COLUMNS * (SIZE + 6) + 6, lines * (SIZE + LABEL + 6) + 6), "white")
    draw = ImageDraw.Draw(sheet)
    for number, (name, pixels) in enumerate(found.items()):
        left, top = 6 + number % COLUMNS * (SIZE + 6), 6 + number // COLUMNS * (SIZE + LABEL + 6)
        sheet.paste(Image.fromarray(pixels.permute(1, 2, 0).numpy()), (left, top + LABEL))
        draw.text((left, top), name, fill="black")
    sheet.quantize(128).save(PICTURE, optimize=True)


if __name__ == "__main__":
    main()
