"""The page's templates (``templates/*.html.j2``). Every value is escaped unless a chart made it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from vivace.report import figures
from vivace.report.ledger_words import in_words
from vivace.report.phases import css_class, phase_name
from vivace.report.to_copy import about_hidden

__all__ = ["render"]


def render(template: str, **values: Any) -> Markup:
    return Markup(_environment().get_template(f"{template}.html.j2").render(**values))


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    names = ("amount", "bytes_gib", "counted", "duration", "interval", "milliseconds", "percent", "plain", "ratio")
    environment.filters.update({name: getattr(figures, name) for name in names})
    environment.filters.update(phase_name=phase_name, phase_class=css_class)
    environment.filters.update(about_hidden=about_hidden, in_words=in_words)
    environment.globals["change"] = figures.signed_percent
    return environment
