"""``vivace plan``: memory, time, energy and cost of a training job before it is queued, and the best layout
for it.

Analytic: nothing here needs a GPU. It may touch ``vivace.hardware`` (the catalogue) and ``vivace.records``;
called by ``vivace.cli.plan`` and, through the ``Plan`` record, by ``launch``. From facts to questions, each
package knowing only those above it (import-linter checks it):

    facts      constants with their sources, frameworks, number formats, optimizers
    models     what a transformer is; names, config files, FLOPs
    machines   GPUs, nodes and links
    jobs       one model on one machine in one layout
    memory     bytes of the most loaded GPU
    time       seconds of one step
    images     image models, traced
    run        days, energy, cost, and how sure they are
    layouts    search, scaling, sizing advice
    answering  from a person's words to records
    grading    predictions against published tables
"""
