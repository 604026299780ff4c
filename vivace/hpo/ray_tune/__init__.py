"""Ray Tune as the engine of a study: it places the trials, and its schedulers end those that are not worth going on.

The ledger stays the study's one book: it says what to try next, counts, retries and resumes, as with Optuna alone.

- ``driver``: the one worker of such a study, which leads Ray's experiment
- ``cluster``: Ray on this machine, on the nodes of a Slurm allocation, or wherever ``RAY_ADDRESS`` is
- ``searcher``: Ray asks it for values, and it asks the ledger
- ``scheduler``: Ray's schedulers, from the first whole trial on
- ``trial``: one trial in a process of Ray's
"""
