"""Splits an unedited single-process training over ranks. Runs inside the user's process: standard library and torch.

Every rank runs the whole script and believes that it is alone. One thing is split: the forward pass of the script's
models, and with it the backward pass. What goes in is cut to the rank's part of the batch, what comes out is put
together again, so that losses, metrics, schedules and decisions are those of the whole batch, the same on every rank.
What cannot be shown to split runs on every rank as the script wrote it: right, only not faster.

Read in this order: ``place`` (which rank), ``group`` (how ranks talk), ``shares`` (who gets which rows), ``crossing``
(into and out of the split region, with gradients), ``region`` (what is different inside: draws, batch norm),
``plan`` (how one call is split, and the proof of it), ``forward``, ``gradients``, ``files``, ``drift``, ``install``.
"""
