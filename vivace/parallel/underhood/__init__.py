"""How parallel training works, from two processes that send a message up to ZeRO, tensor and pipeline parallelism.

Written to be read. Nothing in vivace depends on it: training uses torch's own engines, and the tests compare each
technique here with them. Everything is made of the messages of ``wire``; each message is counted, so that a page can
say "2 (N - 1) messages" and show it.

Read in this order:

- ``wire``: send and receive, blocking and not; why two ranks that both send first wait forever
- ``collectives``: broadcast as a tree, reduce-scatter and all-gather on a ring; all-reduce is one after the other
- ``pi``: a sum that is too long for one process
- ``data_parallel``: one model on every rank; gradients averaged in buckets while the backward pass still runs
- ``zero``: optimizer states, then gradients, then parameters cut over the ranks
- ``tensor``: one layer on several ranks: the pair f and g, columns and rows, embedding, attention, MLP, the groups
- ``pipeline``: layers on different ranks, one after the other, then with micro-batches; the bubble, drawn
- ``halo``: one picture on several ranks; the rows at the edges are exchanged

``python -m vivace.parallel.underhood`` lists the demonstrations; each one prints what it sent and how far its numbers
are from torch's own. Standard library and torch only, gloo on the CPU.
"""
