"""From what the processes saw to the ledger of a step. Pure; ``making.py`` is what ``merge`` calls."""
