"""What a practice is, where they are found, and how they reach the parts of a training job as these are created."""
