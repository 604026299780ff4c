"""How the loss falls with the size of a model and of its data, fitted on runs of one's own."""
