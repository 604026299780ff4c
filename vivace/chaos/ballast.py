"""The name of the file that fills a disk, for those who write and remove it. Without torch."""

from __future__ import annotations

__all__ = ["BALLAST"]

BALLAST = ".vivace-ballast"
