"""Recipes: a whole training as a TOML file, and the reference loop that runs it. ``vivace train RECIPE``.

Read in this order: ``recipe`` (the settings and their types), ``reading`` (TOML, ``extends``, ``--set``), ``course``
(what happens at which step), ``loop`` (the training itself). The rest are parts that the loop calls: ``models``,
``sources`` and ``feeding`` (data), ``augmenting``, ``optimizing``, ``faults``, ``evaluating``, ``logs``, ``saving``.
``published`` holds the recipes of MLPerf as tables; ``shipped`` the recipes that run.
"""
