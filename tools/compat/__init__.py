"""The compatibility suite: vivace in its own environment, trainings with other releases of torch and Python."""
