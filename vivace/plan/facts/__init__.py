"""What the planner takes as given: constants with their sources, number formats, optimizers, frameworks."""
