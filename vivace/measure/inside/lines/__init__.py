"""Which line of the user's code is the host in? Samples of the stack, and whom each millisecond is charged to."""
