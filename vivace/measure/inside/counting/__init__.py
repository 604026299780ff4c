"""What one step computes: FLOPs and operators, counted while they run."""
