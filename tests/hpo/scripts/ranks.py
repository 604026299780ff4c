"""A rank of a distributed trial: notes its value and process; rank 0 prints the metric, for ever if asked to."""

import os
import sys
import time

notes, x, epochs = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
rank = os.environ["RANK"]
handle = os.open(notes, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
line = f"{rank} {sys.argv[2]} {os.getpid():8d}\n".encode()
os.write(handle, line)
os.close(handle)
while os.path.getsize(notes) < int(os.environ["WORLD_SIZE"]) * len(line):
    time.sleep(0.02)
epoch = 0
while epochs == 0 or epoch < epochs:
    epoch += 1
    if rank == "0":
        print(f"epoch {epoch} val_loss {x}", flush=True)
    time.sleep(0.05)
