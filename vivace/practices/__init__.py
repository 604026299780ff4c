"""Everything vivace knows how to improve, one file a practice. ``engine/`` reads and applies them.

To add a practice is to add a file here that ends in ``PRACTICE = Practice(…)``. These files are imported in two places:
by ``vivace check`` and ``tune`` (``find``), and inside the user's training process (``change``). So they need torch and
the standard library only.
"""
