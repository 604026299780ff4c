"""A training that does what its first word says: for everything that can happen to a trial."""

import sys
import time

mood, x = sys.argv[1], float(sys.argv[2])
print(f"val_loss {x}", flush=True) if mood != "silent" else print("nothing to see")
if mood == "crash":
    sys.exit("out of coffee")
if mood == "nan":
    print("val_loss nan", flush=True)
    time.sleep(600)
if mood == "hang":
    time.sleep(600)
if mood == "rest":
    time.sleep(float(sys.argv[3]))
