"""Bytes of an image file to the pixels that a batch needs: decode, cut out a box, resize, in one place.

Three decoders: Pillow, torchvision's on the CPU (both in the loader's workers), and torchvision's nvJPEG on the GPU,
for which workers only read files. Where vivace's tests run there is no torchvision: its two decoders are untested.
"""

from __future__ import annotations

import io
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from vivace.errors import UserError
from vivace.methods.augment.crops import crop_boxes
from vivace.train.data.images import DATA_HINT, BadImage

__all__ = ["Cut", "check_decoder", "decode", "nvjpeg_decode", "size_of"]

Decoder = Literal["pillow", "torchvision", "nvjpeg"]
_BILINEAR = 2  # PIL.Image.Resampling.BILINEAR


class Cut(NamedTuple):
    """The part of an image that is used: a random one if there is a ``scale``, else the middle. Then it is resized."""

    height: int
    width: int
    scale: tuple[float, float] | None
    seed: int
    resize: float = 1.0

    def box(self, width: int, height: int) -> tuple[float, float, float, float]:
        """Left, top, right, bottom in an image of this size."""
        if self.scale is not None:
            draws = torch.Generator().manual_seed(self.seed)
            left, top, wide, high = crop_boxes(1, height, width, self.scale, (3 / 4, 4 / 3), draws)[0].tolist()
            return left, top, left + wide, top + high
        shrink = min(width / (self.width * self.resize), height / (self.height * self.resize))
        wide, high = self.width * shrink, self.height * shrink
        left, top = (width - wide) / 2, (height - high) / 2
        return left, top, left + wide, top + high


def check_decoder(decoder: Decoder) -> None:
    """A ``UserError`` where it is not installed."""
    name = "PIL" if decoder == "pillow" else "torchvision"
    try:
        __import__(name)
    except ImportError:
        hint = DATA_HINT if decoder == "pillow" else "pip install 'vivace[vision]', or --set data.decoder=pillow"
        raise UserError(f"data.decoder: {decoder} cannot be imported", hint=hint) from None
    if decoder == "nvjpeg" and not torch.cuda.is_available():
        raise UserError("data.decoder: nvjpeg needs a CUDA device", hint="--set data.decoder=pillow")


def size_of(data: bytes, origin: str) -> tuple[int, int]:
    """Width and height, from the head of the file."""
    width, height = _opened(data, origin).size
    return width, height


def decode(data: bytes, origin: str, cut: Cut, decoder: Decoder) -> np.ndarray:
    """(height, width, 3) bytes. Raises ``BadImage``."""
    if decoder == "torchvision":
        return _by_torchvision(data, origin, cut)
    image = _opened(data, origin)
    box = cut.box(*image.size)
    try:
        image = image.convert("RGB")
        if image.size != (cut.width, cut.height) or box != (0, 0, *image.size):
            image = image.resize((cut.width, cut.height), _BILINEAR, box=box)
        return np.asarray(image)
    except (OSError, SyntaxError, ValueError) as error:  # cut short, or broken inside
        raise BadImage(f"{origin}: {error}") from None


def _opened(data: bytes, origin: str) -> Any:
    from PIL import Image, UnidentifiedImageError

    try:
        return Image.open(io.BytesIO(data))
    except UnidentifiedImageError:  # its own text names a place in memory, another one each time
        raise BadImage(f"{origin}: it is no image") from None
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise BadImage(f"{origin}: {error}") from None


def _by_torchvision(data: bytes, origin: str, cut: Cut) -> np.ndarray:
    from torchvision.io import ImageReadMode, decode_image

    try:
        pixels = decode_image(torch.frombuffer(bytearray(data), dtype=torch.uint8), ImageReadMode.RGB)
    except RuntimeError as error:
        raise BadImage(f"{origin}: {error}") from None
    return cut_out(pixels, cut).permute(1, 2, 0).contiguous().numpy()


def nvjpeg_decode(files: list[Tensor], cuts: list[Cut], device: torch.device) -> tuple[Tensor, list[int]]:
    """JPEG files to (n, 3, height, width) bytes on the GPU, and the numbers of those that could not be decoded."""
    from torchvision.io import ImageReadMode, decode_jpeg

    try:
        pictures = decode_jpeg(files, ImageReadMode.RGB, device=device)
        bad: list[int] = []
    except RuntimeError:  # one of them is broken, and nvJPEG does not say which
        pictures, bad = [], []
        for number, file in enumerate(files):
            try:
                pictures.append(decode_jpeg(file, ImageReadMode.RGB, device=device))
            except RuntimeError:
                bad.append(number)
    kept = [cut for number, cut in enumerate(cuts) if number not in bad]
    return torch.stack([cut_out(picture, cut) for picture, cut in zip(pictures, kept, strict=True)]), bad


def cut_out(pixels: Tensor, cut: Cut) -> Tensor:
    """The same box and size of a (3, height, width) tensor of bytes; whole pixels only."""
    left, top, right, bottom = (round(edge) for edge in cut.box(pixels.shape[2], pixels.shape[1]))
    part = pixels[:, top : max(bottom, top + 1), left : max(right, left + 1)]
    if part.shape[1:] == (cut.height, cut.width):
        return part
    resized = torch.nn.functional.interpolate(
        part.unsqueeze(0).float(), (cut.height, cut.width), mode="bilinear", antialias=True, align_corners=False
    )
    return resized.round().clamp(0, 255).to(torch.uint8).squeeze(0)
