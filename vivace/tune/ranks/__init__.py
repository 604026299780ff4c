"""Trainings that are split over ranks (``--ranks``): are they equal to one process, how much faster, would they scale?

``comparing`` sets two runs side by side, ``proving`` makes the runs, ``remembered`` keeps the answer for later runs.
"""
