"""What a lab says about itself: the TOML at the top of its source, in comments, as scripts carry their dependencies."""

from __future__ import annotations

import re
import tomllib
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Header", "Need", "split_source"]

_BLOCK = re.compile(r"\A# /// lab\n(?P<toml>(?:#.*\n)+?)# ///\n")


class Need(StrEnum):
    """What a lab cannot do without. The first ones are packages, the last ones machines."""

    TORCH = "torch"
    DATA = "data"
    VISION = "vision"
    TEXT = "text"
    HPO = "hpo"
    RAY = "ray"
    JAX = "jax"
    GPU = "gpu"
    GPUS = "gpus"
    """Two or more."""
    SLURM = "slurm"


class Header(BaseModel):
    """One paragraph per field, in Markdown, as the page shows it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    day: int = Field(ge=1, le=4)
    order: int = Field(ge=1)
    """Place in the day."""
    title: str
    goal: str = Field(max_length=300)
    """Two lines."""
    predict: str
    """What to write down before running it."""
    compare: str
    """What to compare with the prediction; said after the run."""
    see: str
    """What the table shows, and why."""
    hardware: str
    """What changes on other hardware."""
    about_s: int = Field(ge=1, le=60)
    """Seconds of the small form on two CPU cores."""
    course: tuple[str, ...] = ()
    """The course's practicals that it covers: 1_1, DA_2, HPO."""
    needs: tuple[Need, ...] = (Need.TORCH,)
    """For both forms."""
    full_needs: tuple[Need, ...] = ()
    """For the full form in addition."""
    without: str = ""
    """What a run without the machine of ``full_needs`` shows, and what it does not."""
    commands: tuple[str, ...] = ()
    """The same at full size, on a cluster or on the reader's own script."""


def split_source(text: str) -> tuple[Header, str]:
    """The header, and the cells after it.

    >>> split_source("print(1)")
    Traceback (most recent call last):
    ...
    ValueError: a lab begins with its header: # /// lab
    """
    block = _BLOCK.match(text)
    if block is None:
        raise ValueError("a lab begins with its header: # /// lab")
    toml = "".join(line[1:].removeprefix(" ") + "\n" for line in block["toml"].splitlines())
    return Header.model_validate(tomllib.loads(toml)), text[block.end() :]
