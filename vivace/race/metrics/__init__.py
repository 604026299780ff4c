"""The metric of an unedited script: read from its printout and its files, never guessed in silence.

``MetricReader`` (``reader.py``) is the way in. ``names.py`` says which printed names a wanted one may mean,
``printed.py`` finds names and values in a line, ``tensorboard.py`` and ``tables.py`` read what scripts write.
"""
