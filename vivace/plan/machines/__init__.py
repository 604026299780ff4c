"""GPUs, nodes and links as the time and memory models see them, from the hardware catalogue."""
