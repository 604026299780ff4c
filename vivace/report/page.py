"""One self-contained HTML page from sections: no network, light and dark, readable on a phone, printable.

Sections are HTML that the other modules of this package made, with every text from outside escaped. Writes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from vivace import __version__
from vivace.report.rendering import render

__all__ = ["page"]


def page(title: str, sections: Sequence[str]) -> str:
    """``title`` is escaped here; ``sections`` are trusted HTML."""
    return str(render("page", title=title, sections=[Markup(section) for section in sections], version=__version__))
