"""What the GPU did: kernels of a profiler window, idle time, calls that wait."""
