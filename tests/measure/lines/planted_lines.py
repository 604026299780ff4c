"""Delays of known size on known lines, sampled, and the truth by clock marks of the same run: JSON on standard output.

Runs on every Python from 3.9 on, with torch or without: the sampler itself needs nothing of it.
"""

import gc
import json
import sys
import threading
import time
import types
from pathlib import Path

if "--without-torch" in sys.argv:
    torch = types.ModuleType("torch")
    torch.__file__ = "/nowhere/torch/__init__.py"
    sys.modules["torch"] = torch

from vivace.measure.inside import patches

if "--without-torch" in sys.argv:
    patches.unseen_by_dynamo = lambda function, and_beneath=False: function

from vivace.measure.inside.lines.bytecode import line_of
from vivace.measure.inside.lines.charging import charge
from vivace.measure.inside.lines.sampler import LineSampler

TRUTH = {}
ROWS = [{"a": i, "b": str(i)} for i in range(3000)]
WORDS = [str(i * 7919 % 10007) for i in range(30000)]
LOCK = threading.Lock()


def timed(name):
    """Both marks of a line are on lines of their own, and cost next to nothing."""
    now = time.perf_counter_ns()
    before = TRUTH.setdefault(name, [0, 0])
    if before[1]:
        before[0] += now - before[1]
        before[1] = 0
    else:
        before[1] = now


def planted():
    timed("sleep")
    time.sleep(0.02)  # planted: sleep
    timed("sleep")
    timed("busy")
    busy()
    timed("busy")
    timed("holds the GIL")
    sorted(WORDS)  # planted: holds the GIL
    timed("holds the GIL")
    timed("library")
    json.dumps(ROWS)  # planted: library
    timed("library")
    timed("asked collection")
    gc.collect()  # planted: asked collection
    timed("asked collection")
    LOCK.acquire()
    threading.Timer(0.015, LOCK.release).start()
    timed("lock")
    LOCK.acquire()  # planted: lock
    timed("lock")
    LOCK.release()
    timed("comprehension")
    sum([sum(range(i)) for i in range(1200)])  # planted: comprehension
    timed("comprehension")


def busy():
    total = 0
    for i in range(120_000):
        total += i * i  # planted: busy
    return total


def main():
    planted()
    TRUTH.clear()
    sampler = LineSampler()
    sampler.begin()
    for _ in range(8):
        planted()
    sampler.finish()
    charges = charge(sampler.samples, sampler.collections, sampler.began_ns, sampler.period_ns, [])
    names = dict(enumerate(Path(__file__).read_text().splitlines(), start=1))
    found = {}
    for (stack, _phase), one in charges.lines.items():
        text = names.get(line_of(stack.code, stack.at), "") if stack.code is not None else ""
        name = text.partition("# planted: ")[2].partition("  #")[0] or "innocent"
        found[name] = found.get(name, 0) + one.ns
    whole = sampler.ended_ns - sampler.began_ns
    print(
        json.dumps(
            {
                "python": sys.version_info[:2],
                "how": sampler.how.value,
                "samples": len(sampler.samples),
                "whole_ms": whole / 1e6,
                "own_ms": charges.own_ns / 1e6,
                "no_core_ms": (sampler.samples[-1].no_core_ns - sampler.samples[0].no_core_ns) / 1e6,
                "gc_ms": charges.gc_ns / 1e6,
                "truth_ms": {name: ns / 1e6 for name, (ns, _) in TRUTH.items()},
                "found_ms": {name: ns / 1e6 for name, ns in found.items()},
            }
        )
    )


if "--in-a-thread" in sys.argv:  # the fallback
    thread = threading.Thread(target=main)
    thread.start()
    thread.join()
else:
    main()
