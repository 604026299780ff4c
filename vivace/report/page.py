"""One self-contained HTML page from sections: no network, light and dark, readable on a phone, printable.

Sections are HTML that the other modules of this package made, with every text from outside escaped. Writes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import jinja2
from markupsafe import Markup

from vivace import __version__

__all__ = ["page"]

_TEMPLATE = Path(__file__).parent / "page.html.j2"


def page(title: str, sections: Sequence[str]) -> str:
    """``title`` is escaped here; ``sections`` are trusted HTML."""
    template = jinja2.Environment(autoescape=True).from_string(_TEMPLATE.read_text(encoding="utf-8"))
    return template.render(title=title, sections=[Markup(section) for section in sections], version=__version__)
