"""The steps of a proof. ``tune/proving.py`` lists them in order; each takes the ``Case`` and changes it."""
