"""The version of what the command and the process say to each other. Raise it when a type of this package changes."""

from __future__ import annotations

__all__ = ["PROTOCOL", "ProtocolError"]

PROTOCOL = 4


class ProtocolError(ValueError):
    """The other side speaks another version, or what it said has another shape."""
