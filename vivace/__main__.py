"""The ``vivace`` command, also as ``python -m vivace``. Ctrl-C while it is still being imported is no traceback."""

from __future__ import annotations

import sys

__all__ = ["main"]

EXIT_INTERRUPTED = 130  # as a shell reports SIGINT


def main() -> None:
    try:
        from vivace.cli.app import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    main()
