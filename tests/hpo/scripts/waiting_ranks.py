"""A rank under srun: notes its value, waits for a file, and rank 0 prints the metric."""

import os
import sys
import time

notes, x, go = sys.argv[1:]
rank = os.environ["RANK"]
handle = os.open(notes, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
os.write(handle, f"{rank} {x}\n".encode())
os.close(handle)
while not os.path.exists(go):
    time.sleep(0.1)
if rank == "0":
    print(f"val_loss {x}", flush=True)
