"""Says what holds a job back, tries the fixes in fresh processes, keeps what pays, and proves it."""
