"""Notes on which node of Slurm's it runs, takes a moment, and prints its value."""

import os
import sys
import time

notes, x, seconds = sys.argv[1:]
handle = os.open(notes, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
os.write(handle, f"{os.environ['SLURMD_NODENAME']} {x}\n".encode())
os.close(handle)
time.sleep(float(seconds))
print(f"val_loss {x}", flush=True)
