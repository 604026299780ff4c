"""Rosenbrock's function, of the words that the command gives; it prints one figure, at its end."""

import sys

x, y = float(sys.argv[1]), float(sys.argv[2])
print(f"final score: {(1 - x) ** 2 + 100 * (y - x**2) ** 2:.9f}")
