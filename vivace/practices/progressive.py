"""Progressive resizing: ``progressive=0.5:2000``. Small images first, the script's own size at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vivace.practices.engine.change import Change, NotApplicable
from vivace.practices.engine.practice import Practice, never_found

if TYPE_CHECKING:
    import torch

_DEFAULT_SHARE, _DEFAULT_STEPS = 0.5, 1000
_MULTIPLE = 32  # of pixels: networks halve the sides five times


class Progressive(Change):
    """``SHARE:STEPS``: sides grow from that share to all of it over that many steps."""

    def __init__(self, argument: str | None = None) -> None:
        super().__init__(argument)
        self.share, self.over = _parsed(argument)
        self.step = 0
        self.tried = False
        self.unfit: str | None = None  # why this model cannot have smaller images

    def inputs(self, root: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        import torch

        if not (root.training and torch.is_grad_enabled()) or self.step >= self.over or self.unfit:
            return args, kwargs
        images = args[0] if args else None
        if not (isinstance(images, torch.Tensor) and images.dim() == 4 and images.is_floating_point()):
            raise NotApplicable(f"the first input of {type(root).__name__} is no batch of images")
        share = self.share + (1 - self.share) * self.step / self.over
        sides = tuple(_rounded(side, share) for side in images.shape[-2:])
        if sides == tuple(images.shape[-2:]):
            return args, kwargs
        smaller = torch.nn.functional.interpolate(
            images, size=sides, mode="bilinear", align_corners=False, antialias=True
        )
        if not self.tried:
            self.tried, self.unfit = True, self._unfit(root, images, smaller, args, kwargs)
            if self.unfit:
                raise NotApplicable(self.unfit)
        self.applied(f"training images of {sides[0]}×{sides[1]} first, full size from step {self.over} on")
        return (smaller, *args[1:]), kwargs

    def _unfit(
        self, root: torch.nn.Module, images: Any, smaller: Any, args: tuple[Any, ...], kwargs: Any
    ) -> str | None:
        """Whether the model takes other sizes, and answers in the same shape: one image, in evaluation mode."""
        import torch

        was_training = {module: module.training for module in root.modules()}
        root.eval()
        try:
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                shapes = [getattr(root(each[:1], *args[1:], **kwargs), "shape", None) for each in (images, smaller)]
        except Exception as error:
            return f"{type(root).__name__} does not take smaller images: {error}"
        finally:
            for module, training in was_training.items():
                module.training = training
        if shapes[0] is None or shapes[0] != shapes[1]:
            return f"the output of {type(root).__name__} changes its shape with the size of the images"
        return None

    def after_step(self, optimizer: torch.optim.Optimizer) -> None:
        self.step += 1


def _parsed(argument: str | None) -> tuple[float, int]:
    if argument is None:
        return _DEFAULT_SHARE, _DEFAULT_STEPS
    share, colon, steps = argument.partition(":")
    if not colon or not steps.isdigit() or int(steps) < 1 or not 0 < float(share) < 1:
        raise ValueError(f"{argument!r} is not SHARE:STEPS, such as 0.5:2000")
    return float(share), int(steps)


def _rounded(side: int, share: float) -> int:
    multiple = _MULTIPLE if side >= 4 * _MULTIPLE else 4
    return min(side, max(multiple, round(side * share / multiple) * multiple))


PRACTICE = Practice(
    name="progressive",
    title="progressive resizing",
    family="method",
    risk="algorithmic",
    source="DLO-JZ, fast.ai's ImageNet in 18 minutes: 128 pixels, then 224, then 288.",
    why=(
        "A step on images of half the side costs about a quarter, and the first epochs learn what small images show as "
        "well. Training images are made smaller on the device; the validation keeps the full size. The number of steps "
        "until full size is yours to say. Refused for models whose output or layers depend on the size."
    ),
    by_hand="images = torch.nn.functional.interpolate(images, (128, 128), mode='bilinear', antialias=True)   # early",
    find=never_found,
    change=Progressive,
    argument="SHARE:STEPS (0.5:1000)",
    other_draws=True,
    same_arithmetic=False,
    order=34,
)
