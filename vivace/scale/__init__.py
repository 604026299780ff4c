"""Splits an unedited single-process training over ranks. Runs inside the user's process: standard library and torch.

Every rank runs the whole script and believes that it is alone. One thing is split: the batches. Each rank loads and
computes its rows of a batch, but what the script sees of it looks whole, so that losses, metrics, schedules and
decisions are those of the whole batch, the same on every rank. What cannot be shown to split runs on every rank as the
script wrote it: right, only not faster.

Read in this order: ``place`` (which rank), ``group`` (how ranks talk), ``shares`` and ``layout`` (who gets which rows),
``crossing`` (into and out of the split, with gradients), ``rows`` (a batch that looks whole; ``row_rules``,
``row_views``, ``losses``: what is done with it row by row; ``row_edges``: where it is gathered), ``loader`` (each rank
loads its rows), ``region`` (what is different inside a split forward: draws, batch norm), ``plan`` (how one call is
split, and the proof of it; ``joins``, ``kept``, ``decisions``), ``forward``, ``gradients``, ``files``, ``drift``,
``install``.
"""
