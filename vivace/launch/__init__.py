"""Launching: a job's shape, its Slurm script, sending it, and asking how it goes; or torchrun on this machine."""
