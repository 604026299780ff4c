"""The ``vivace`` command, also as ``python -m vivace``. Ctrl-C while it is still being imported is no traceback."""

from __future__ import annotations

import sys

from vivace.errors import ExitCode

__all__ = ["main"]


def main() -> None:
    try:
        from vivace.cli.app import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)


if __name__ == "__main__":
    main()
