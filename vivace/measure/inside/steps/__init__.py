"""What a step is and what it is made of: marks, cycles of optimizers, backward passes, phases."""
