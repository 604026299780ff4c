"""The ``vivace`` command, also as ``python -m vivace``. Ctrl-C while it is still being imported is no traceback."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    try:
        from vivace.cli.app import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)  # ExitCode.INTERRUPTED, which may not be imported yet


if __name__ == "__main__":
    main()
