"""What the command and the user's process say to each other, as types. Standard library only, Python 3.9 syntax.

Both sides import this package: the command to ask and to read, the process to answer. It imports nothing of vivace.
"""
