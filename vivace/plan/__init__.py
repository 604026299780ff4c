"""``vivace plan``: memory, time, energy and cost of a training job before it is queued, and the best layout
for it.

Analytic: nothing here needs a GPU. It may touch ``vivace.hardware`` (the catalogue) and
``vivace.records``; called by ``vivace.cli.plan`` and, through the ``Plan`` record, by ``launch``.
"""
