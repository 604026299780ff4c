"""Training that is split over processes: on torch's own engines, and from scratch to be read (``underhood``).

``mesh`` makes the mesh of a layout, ``parallelize`` is the recipe, and each technique has a file. ``legal`` and
``engine`` need no torch: the command line asks them before any process starts.
"""
