"""A parabola with noise from a seed; equal seeds give equal noise whatever the value."""

import random
import sys

x, seed = float(sys.argv[1]), int(sys.argv[2])
print(f"val_loss {x * x + random.Random(seed).gauss(0, 0.5) + random.Random(f'{seed} {x}').gauss(0, 0.1)}")
