"""Image models: traced on the meta device, then timed and weighed operation by operation."""
