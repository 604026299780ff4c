"""``import idr_pytools`` for the course's notebooks, where IDRIS' own is not installed: ``vivace.launch.notebook``."""

from vivace.launch.notebook import display_slurm_queue, gpu_jobs_submitter, search_log

__all__ = ["display_slurm_queue", "gpu_jobs_submitter", "search_log"]
