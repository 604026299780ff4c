"""``vivace chaos``: a fault in a job, on purpose, and what became of it.

``inside`` is in every process of the job: it counts steps and strikes. ``running`` starts the job (``life``), watches
it and starts it again; ``watching`` reads what the processes tell; ``judging`` makes the record.
"""
