"""Makes the page and the notebook of each lab from its one source, ``vivace/labs/sources/NAME.py``.

python tools/labs.py              writes docs/labs/NAME.md and NAME.ipynb for every lab, and docs/labs/index.md
python tools/labs.py --check      says which are out of date, and ends with 1
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

from vivace.labs.catalogue import Lab, all_labs
from vivace.labs.page import needed, notebook, page

PAGES = Path(__file__).resolve().parent.parent / "docs" / "labs"


def products(lab: Lab) -> dict[Path, str]:
    return {PAGES / f"{lab.name}.md": page(lab), PAGES / f"{lab.name}.ipynb": notebook(lab)}


def index() -> dict[Path, str]:
    """All labs by day, then the pages that are read and not run."""
    lines = ["# Labs", "", "The course's practical work. `vivace lab run NAME --small` runs one on two CPU cores.", ""]
    for day, labs in itertools.groupby(all_labs(), key=lambda lab: lab.header.day):
        lines += [f"## Day {day}", "", "| lab | goal | needs | small form |", "|---|---|---|---|"]
        for lab in labs:
            needs = needed(lab.header.needs)
            if lab.header.full_needs:
                needs += f"; at full size also {needed(lab.header.full_needs)}"
            goal, seconds = " ".join(lab.header.goal.split()), lab.header.about_s
            lines.append(f"| [{lab.header.title}]({lab.name}.md) | {goal} | {needs} | about {seconds} s |")
        lines.append("")
    made = {"index", *(lab.name for lab in all_labs())}
    if others := sorted(path for path in PAGES.glob("*.md") if path.stem not in made):
        lines += ["## Commands to type", "", "These pages are followed by hand, command by command.", ""]
        lines += [f"- [{_title(path)}]({path.name})" for path in others] + [""]
    return {PAGES / "index.md": "\n".join(lines)}


def _title(path: Path) -> str:
    return path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# Lab: ")


def main(words: list[str]) -> int:
    stale = []
    wanted = [item for lab in all_labs() for item in products(lab).items()] + list(index().items())
    for path, text in wanted:
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(path.name)
            if "--check" not in words:
                path.write_text(text, encoding="utf-8")
    if "--check" in words and stale:
        print(f"out of date: {', '.join(stale)}; run python tools/labs.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
