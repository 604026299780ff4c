"""``python -m vivace`` is the same as ``vivace``."""

from vivace.cli.app import main

if __name__ == "__main__":
    main()
