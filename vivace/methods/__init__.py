"""Methods that change the training itself: optimizers first. Plain parts for anybody's loop, torch and nothing else.

Each file can be copied out and used alone. The practices put them into scripts from outside; a race tells whether they
pay (``vivace race``).
"""
