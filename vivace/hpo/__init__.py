"""Hyper-parameter search on unedited commands, by one process, many, or the tasks of a Slurm array."""
