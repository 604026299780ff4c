"""``TextEnum``: an enum whose members are strings.

``enum.StrEnum`` needs Python 3.11; the user's process may have 3.9.
"""

from __future__ import annotations

import enum

__all__ = ["TextEnum"]


class TextEnum(str, enum.Enum):
    """Members equal their value, print as it, and go to JSON as it."""

    value: str

    def __str__(self) -> str:
        return self.value

    def __format__(self, spec: str) -> str:
        return format(self.value, spec)
