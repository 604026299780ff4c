"""All legal layouts, the best of them, how they scale, and sizes that would run better."""
