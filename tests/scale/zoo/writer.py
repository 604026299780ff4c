"""A writer in the manner of TensorBoard, a CSV log, JSON lines; what was written is read back, also by a thread."""

import csv
import json
import pathlib
import struct
import threading

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


class Writer:
    def __init__(self, folder):
        self.path = pathlib.Path(folder) / "events.bin"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.file = self.path.open("wb")

    def add_scalar(self, tag, value, step):
        record = tag.encode()
        self.file.write(struct.pack("<IdI", step, float(value), len(record)) + record)

    def add_histogram(self, tag, values, step):
        for index, count in enumerate(torch.histc(values.detach().float(), 4).tolist()):
            self.add_scalar(f"{tag}/{index}", count, step)

    def close(self):
        self.file.close()


torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
data = TensorDataset(torch.randn(24, 4), torch.randn(24, 1))
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.05)
writer = Writer("runs/one")
log = open("log.csv", "w", newline="")
rows = csv.writer(log)
losses = []
for step, (x, y) in enumerate(DataLoader(data, 7, shuffle=True)):
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    writer.add_scalar("loss", loss, step)
    writer.add_histogram("weight", model[0].weight, step)
    writer.add_histogram("gradient", model[0].weight.grad, step)
    rows.writerow([step, losses[-1]])
    with open("log.jsonl", "a") as file:
        file.write(json.dumps({"step": step, "loss": losses[-1]}) + "\n")
    teller = threading.Thread(target=lambda step=step: print("from a thread", step, losses[step]))
    teller.start()
    teller.join()
writer.close()
log.close()
print("bytes", pathlib.Path("runs/one/events.bin").stat().st_size)
print("rows", *[float(row[1]) for row in csv.reader(open("log.csv"))])
print("lines", *[json.loads(line)["loss"] for line in open("log.jsonl")])
