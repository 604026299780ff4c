"""Makes the page and the notebook of each lab from its one source, ``vivace/labs/sources/NAME.py``.

python tools/labs.py              writes docs/labs/NAME.md and NAME.ipynb for every lab
python tools/labs.py --check      says which are out of date, and ends with 1
"""

from __future__ import annotations

import sys
from pathlib import Path

from vivace.labs.catalogue import Lab, all_labs
from vivace.labs.page import notebook, page

PAGES = Path(__file__).resolve().parent.parent / "docs" / "labs"


def products(lab: Lab) -> dict[Path, str]:
    return {PAGES / f"{lab.name}.md": page(lab), PAGES / f"{lab.name}.ipynb": notebook(lab)}


def main(words: list[str]) -> int:
    stale = []
    for lab in all_labs():
        for path, text in products(lab).items():
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
