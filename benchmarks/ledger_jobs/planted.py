"""A small training loop with one delay on a known line in every step; writes clock marks of that line at the end.

    python planted.py --plant sleep --marks marks.json

The planted line carries its name in a comment. Innocent lines stand around it. The delay lies before the optimizer's
step, so that every step that ends has it.
"""

import argparse
import atexit
import gc
import json
import os
import resource
import threading
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--plant", default="none")
parser.add_argument("--marks", required=True)
parser.add_argument("--steps", type=int, default=400)
args = parser.parse_args()
RANK = int(os.environ.get("RANK", 0))

WORDS = [str(i * 7919 % 100_003) for i in range(20_000)]
ROWS = [{"a": i, "b": str(i)} for i in range(4000)]
FLOATS = np.random.default_rng(0).random(150_000)
NUMBERS = list(range(250_000))
BIG = torch.randn(400, 400)
LOCK = threading.Lock()
IN_WORKER = []
COLLECTING = {"since": 0.0, "ms": 0.0}


def plant_sleep():
    time.sleep(0.005)  # planted: sleep


def plant_busy():
    total = 0
    for i in range(60_000):
        total += i * i  # planted: busy
    return total


def plant_numpy():
    np.sort(FLOATS)  # planted: numpy


def plant_holds_gil():
    sorted(WORDS)  # planted: holds_gil


def plant_library():
    json.dumps(ROWS)  # planted: library


def plant_collect():
    gc.collect()  # planted: collect


def plant_allocation():
    [bytearray(4_000_000) for _ in range(4)]  # planted: allocation


def plant_lock():
    with LOCK:  # planted: lock
        pass


def plant_in_list():
    found = -1 in NUMBERS  # planted: in_list
    return str(found)


def plant_operator():
    product = BIG @ BIG @ BIG  # planted: operator
    return product.shape


def plant_cycles():
    """Not one line's: garbage in cycles, until the collector runs by itself."""
    for _ in range(3000):
        node = []
        node.append(node)


class Samples(Dataset):
    def __len__(self):
        return 16 * args.steps

    def __getitem__(self, index):
        x = torch.full((256,), float(index % 7))
        if args.plant == "transform":
            x = self.transform(x)
        return x, index % 10

    def transform(self, x):
        before = time.perf_counter()
        time.sleep(0.0004)  # planted: transform
        IN_WORKER.append(1e3 * (time.perf_counter() - before))
        if len(IN_WORKER) % 160 == 0:  # per batch of 16
            write([16 * sum(IN_WORKER[-160:]) / 160])
        return x


def on_collection(phase, _facts):
    if phase == "start":
        COLLECTING["since"] = time.perf_counter()
    else:
        COLLECTING["ms"] += 1e3 * (time.perf_counter() - COLLECTING["since"])


def hold_the_lock():
    with LOCK:
        time.sleep(0.006)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    world = int(os.environ.get("WORLD_SIZE", 1))
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    if world > 1:
        torch.distributed.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    plant = globals().get(f"plant_{args.plant}")
    marks = []
    if args.plant == "cycles":
        gc.callbacks.append(on_collection)
    if args.plant != "transform":
        atexit.register(lambda: write(marks))
    loader = DataLoader(Samples(), 16, num_workers=1 if args.plant == "transform" else 0)
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        innocent = str(args.steps)
        if args.plant == "lock":
            threading.Thread(target=hold_the_lock).start()
            time.sleep(0.001)
        before = now()
        if plant is not None:
            plant()
        if args.plant == "slow_rank" and RANK == 1:
            time.sleep(0.008)
        took = since(before)
        marks.append(took if args.plant != "cycles" else COLLECTING["ms"])
        COLLECTING["ms"] = 0.0
        innocent = str(innocent) + "."
        loss.backward()
        optimizer.step()


def now():
    """Time, waits for a core, and how often the thread gave one up: as vivace reads them."""
    with open(f"/proc/self/task/{threading.get_native_id()}/schedstat") as file:
        waited_ns = int(file.read().split()[1])
    return waited_ns, resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw, time.perf_counter()


def since(before):
    end = time.perf_counter()
    waited_ns, blocked, _ = now()
    no_core_s = (waited_ns - before[0]) / 1e9 if blocked == before[1] else 0.0
    return 1e3 * (end - before[2] - no_core_s)


def write(marks):
    if RANK == 0:
        with open(args.marks, "w") as file:
            json.dump(marks, file)


if __name__ == "__main__":
    main()
