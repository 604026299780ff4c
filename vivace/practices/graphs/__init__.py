"""Changes to the graph of a model's forward: what is found in it, what takes its place, where torch hands it over."""
