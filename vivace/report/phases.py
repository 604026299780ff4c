"""The parts of a step: their order, names and colours, the same in the terminal and on the page."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["PHASES", "TERMINAL_COLOURS", "css_class", "in_order", "phase_name"]

TERMINAL_COLOURS = {
    "loader": "red", "copy": "magenta", "forward": "green", "backward": "blue", "communication": "yellow",
    "optimizer": "cyan", "other": "bright_black",
}  # fmt: skip
"""The page's style sheet has the same hues as ``--phase-loader``, ``--phase-copy``, …"""
PHASES = tuple(TERMINAL_COLOURS)
_NAMES = {"loader": "loader wait", "copy": "copy to GPU"}


def phase_name(phase: str) -> str:
    return _NAMES.get(phase, phase)


def css_class(phase: str) -> str:
    return f"phase-{phase if phase in PHASES else 'other'}"


def in_order(phases: Iterable[str]) -> list[str]:
    """Known phases as a step goes through them, then any other."""
    return sorted(phases, key=lambda phase: PHASES.index(phase) if phase in PHASES else len(PHASES))
