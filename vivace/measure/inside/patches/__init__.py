"""Where training code is caught, one file per place. Each ``install`` replaces a torch function by one that does the
same and leaves marks around it. All of them pass straight through while torch.compile traces them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["in_place_of", "unseen_by_dynamo"]

F = TypeVar("F", bound=Callable[..., Any])


def in_place_of(original: Callable[..., Any], function: F) -> F:
    """``function`` as a stand-in: it carries the original's name (it must pickle under it) and dynamo skips it too."""
    functools.update_wrapper(function, original)
    return unseen_by_dynamo(function)


def unseen_by_dynamo(function: F, and_beneath: bool = False) -> F:
    """Keep torch.compile from taking our function for code of the user's that it could compile.

    torch's own files are on its list of frames to skip; a function of ours in their place must be put there too. Frames
    that it calls (the user's forward) are compiled as before, unless they are ours as well (``and_beneath``).
    """
    import torch  # here: the command reads this file too, and may have no torch

    frames: Any = torch._C._dynamo.eval_frame
    # What torch._dynamo.eval_frame.skip_code does, without importing dynamo into every process that imports torch.
    if hasattr(frames, "set_code_exec_strategy"):
        beneath = frames._FrameAction.SKIP if and_beneath else frames._FrameAction.DEFAULT
        strategy = frames._FrameExecStrategy(frames._FrameAction.SKIP, beneath)
        frames.set_code_exec_strategy(function.__code__, strategy)
    else:  # torch before 2.7
        frames.skip_code(function.__code__)
    return function
