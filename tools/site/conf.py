"""How Sphinx makes a site of docs/: MyST reads the Markdown as GitHub does, furo draws it, without the network.

The list of pages is here and not in docs/index.md, where GitHub would show it as code.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import from_code

project = "vivace"
html_title = "vivace"
extensions = ["myst_parser"]
html_theme = "furo"
source_suffix = {".md": "markdown"}
myst_heading_anchors = 4  # GitHub's names for headings
highlight_language = "none"
html_copy_source = False

SECTIONS = {
    "Make it fast": ["measure", "check", "ledger", "tune", "find", "practices", "report", "chronometer"],
    "More GPUs": ["scale", "scale_scripts", "parallel", "train"],
    "Sooner at the target": ["race", "methods", "recipes", "hpo"],
    "Clusters": ["plan", "hardware", "slurm", "checkpoints"],
    "Labs": ["labs/index", "labs/*"],
    "Reference": ["commands", "exit_codes", "compatibility", "results", "coverage", "glossary"],
}


def with_sections(app: Any, name: str, source: list[str]) -> None:
    if name == "index":
        for title, pages in SECTIONS.items():
            source[0] += f"\n\n```{{toctree}}\n:hidden:\n:glob:\n:caption: {title}\n\n" + "\n".join(pages) + "\n```\n"


def with_what_the_code_says(app: Any, name: str, source: list[str]) -> None:
    if name == "practices":
        source[0] += "\n" + from_code.practices() + "\n"
    if name == "commands":
        source[0] += "\n" + from_code.commands() + "\n"


def without_links_to_folders(app: Any, name: str, source: list[str]) -> None:
    """Files outside docs/ travel with the site; folders and pages outside are links on GitHub only."""

    def kept(link: re.Match[str]) -> str:
        target = (app.srcdir / name).parent / link["path"]
        outside = not target.resolve().is_relative_to(Path(app.srcdir))
        return link["text"] if outside and (target.is_dir() or target.suffix == ".md") else link[0]

    source[0] = re.sub(r"\[(?P<text>[^\]]+)\]\((?P<path>\.\./[^)#]+)\)", kept, source[0])


def setup(app: Any) -> None:
    app.connect("source-read", with_sections)
    app.connect("source-read", with_what_the_code_says)
    app.connect("source-read", without_links_to_folders)
