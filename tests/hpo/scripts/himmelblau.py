"""Himmelblau's function as a training would show it: its loss falls to the function's value over six epochs."""

import sys

x, y = float(sys.argv[1]), float(sys.argv[2])
value = (x**2 + y - 11) ** 2 + (x + y**2 - 7) ** 2
for epoch in range(1, 7):
    print(f"epoch {epoch} val_loss {value + 12 - 2 * epoch:.9f}", flush=True)
