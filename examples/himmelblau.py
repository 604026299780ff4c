"""Two functions of the course's lab on hyper-parameter search, as a training would show them: no torch, milliseconds.

    python examples/himmelblau.py --x 3 --y 2
    python examples/himmelblau.py --x 1 --y 1 --function rosenbrock --noise 5 --seed 3

The loss falls over the epochs to the function's value, faster for some (x, y) than for others. With ``--noise`` another
seed gives another loss, as a training does. Himmelblau's function has four minima of 0, one of them at (3, 2);
Rosenbrock's has one, at (1, 1).
"""

import argparse
import math
import random
import time

parser = argparse.ArgumentParser()
parser.add_argument("--x", type=float, required=True)
parser.add_argument("--y", type=float, required=True)
parser.add_argument("--function", choices=("himmelblau", "rosenbrock"), default="himmelblau")
parser.add_argument("--epochs", type=int, default=9)
parser.add_argument("--epoch-s", type=float, default=0.0, help="seconds that an epoch takes")
parser.add_argument("--noise", type=float, default=0.0)
parser.add_argument("--seed", type=int, default=0)
arguments = parser.parse_args()

x, y = arguments.x, arguments.y
if arguments.function == "himmelblau":
    value = (x**2 + y - 11) ** 2 + (x + y**2 - 7) ** 2
else:
    value = (1 - x) ** 2 + 100 * (y - x**2) ** 2
value += arguments.noise * random.Random(f"{arguments.seed} {x} {y}").gauss(0, 1)
pace = random.Random(f"{x} {y}").uniform(4, 8)

for epoch in range(1, arguments.epochs + 1):
    time.sleep(arguments.epoch_s)
    still_above = (20 + abs(value)) * math.exp(-pace * epoch / arguments.epochs) if epoch < arguments.epochs else 0.0
    print(f"epoch {epoch}  val_loss {value + still_above:.6f}", flush=True)
