"""nanoGPT's train.py with `--dtype=float32 --compile=False`, tuned without an edit: how near to its own best flags?

    python benchmarks/nanogpt_fp32.py path/to/nanoGPT --budget 7 --tune-minutes 4.5
    python benchmarks/nanogpt_fp32.py path/to/nanoGPT --device cpu --quick

The script enters autocast to float32 then, which is no mixed precision. Its own flags for speed, `--dtype=bfloat16
--compile=True`, are what the tuned job is held against: both run in turn afterwards, with the fp32 job. Sizes are GPT-2
124M's (12 layers, width 768, context 1024, batch 12) on characters. Appends to results/nanogpt_fp32.csv.
"""

from __future__ import annotations

import argparse
import pickle
import sys
import tempfile
from pathlib import Path

import numpy as np
from rows import Clock, Table, hardware, say
from sides import ROOT, Side, ratio, run_rounds, vivace_json

_HERE = Path(__file__).parent
_DATA = "shakespeare_char"
_VALIDATION = 0.1
_QUICK = ("--n_layer=2", "--n_head=2", "--n_embd=32", "--block_size=32", "--batch_size=2")
FIELDS = (
    "side", "accumulation", "step_ms", "step_ms_p10", "step_ms_p90", "against", "ratio", "ratio_low", "ratio_high",
    "runs", "practices", "seconds", "note", "hardware", "torch",
)  # fmt: skip


def make_data(checkout: Path) -> None:
    """Characters of this project's own documents, where the checkout has no data yet."""
    folder = checkout / "data" / _DATA
    if (folder / "meta.pkl").is_file() and (folder / "train.bin").is_file():
        return
    text = "".join(path.read_text() for path in sorted((ROOT / "docs").glob("*.md")))
    characters = sorted(set(text))
    codes = np.array([characters.index(character) for character in text], dtype=np.uint16)
    split = int(len(codes) * (1 - _VALIDATION))
    folder.mkdir(parents=True, exist_ok=True)
    codes[:split].tofile(folder / "train.bin")
    codes[split:].tofile(folder / "val.bin")
    numbers = {character: number for number, character in enumerate(characters)}
    meta = {"vocab_size": len(characters), "itos": dict(enumerate(characters)), "stoi": numbers}
    (folder / "meta.pkl").write_bytes(pickle.dumps(meta))


def command(args: argparse.Namespace, dtype: str, compiled: bool) -> list[str]:
    """It reads its settings and data from the current folder."""
    return [
        "env", "-C", str(args.checkout.resolve()), sys.executable, "train.py", f"--dataset={_DATA}",
        f"--device={args.device}", f"--dtype={dtype}", f"--compile={compiled}",
        f"--gradient_accumulation_steps={args.accumulation}", "--eval_interval=1000000", "--eval_iters=1",
        "--max_iters=100000", *(_QUICK if args.quick else ()),
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path, help="a checkout of karpathy/nanoGPT")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--accumulation", type=int, default=4)
    parser.add_argument("--budget", type=float, help="minutes for everything")
    parser.add_argument("--tune-minutes", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=2, help="of the three sides in turn, after the tune")
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--quick", action="store_true", help="a tiny model")
    parser.add_argument("--output", type=Path, default=_HERE / "results" / "nanogpt_fp32.csv")
    args = parser.parse_args()
    clock, table = Clock(args.budget), Table(args.output, FIELDS, hardware(args.device))
    make_data(args.checkout)
    with tempfile.TemporaryDirectory() as folder:
        words: tuple[str, ...] = ()
        try:
            words = tune(args, clock, table, Path(folder))
        except RuntimeError as error:  # the script's own flags are compared nevertheless
            table.add(side="tune", accumulation=args.accumulation, note=f"failed: {error}")
        compare(args, words, clock, table, Path(folder))


def tune(args: argparse.Namespace, clock: Clock, table: Table, folder: Path) -> tuple[str, ...]:
    minutes = min(args.tune_minutes, clock.left_s() / 60)
    proof = vivace_json(
        ["tune", "--budget", f"{minutes:.2f}", "--steps", str(args.steps), "-o", str(folder / "runs")],
        command(args, "float32", compiled=False), 60 * minutes + 60, args.output.with_suffix(".log"),
    )  # fmt: skip
    words = tuple(gain["practice"] for gain in proof["practices"])
    speedup, failed = proof["speedup"], [f"{r['practice']}: {r['why']}" for r in proof["rejected"]]
    table.add(
        side="tune", accumulation=args.accumulation, against="fp32", ratio=speedup["median"], ratio_low=speedup["low"],
        ratio_high=speedup["high"], runs=len(proof["after"]["losses"]) if proof["after"] else 0,
        practices=" ".join(words), seconds=proof["seconds"], note="; ".join([*proof["notes"], *failed]),
    )  # fmt: skip
    return words


def compare(args: argparse.Namespace, words: tuple[str, ...], clock: Clock, table: Table, folder: Path) -> None:
    native = Side("bf16_compile", command(args, "bfloat16", compiled=True))
    tuned = Side("tuned", command(args, "float32", compiled=False), words)
    plain = Side("fp32", command(args, "float32", compiled=False))
    sides = (native, tuned, plain)
    run_rounds(sides, args.rounds, args.steps, folder / "sides", clock, timeout_s=120)
    for side, against in ((plain, None), (native, plain), (tuned, plain), (tuned, native)):
        row = {"side": side.name, "accumulation": args.accumulation, "practices": " ".join(side.words)}
        if side.failed or (against is not None and against.failed):
            table.add(**row, note=side.failed or f"{against.name}: {against.failed}" if against else side.failed)
            continue
        last = side.records[-1].step_ms
        assert last is not None
        row |= {"step_ms": last.median, "step_ms_p10": last.p10, "step_ms_p90": last.p90, "runs": len(side.records)}
        if against is not None:
            found = ratio(side, against)
            row |= {"against": against.name, "ratio": found.median, "ratio_low": found.low, "ratio_high": found.high}
        table.add(**row, seconds=side.seconds)
    say("the aim: tuned against bf16_compile of 0.95 or more")


if __name__ == "__main__":
    main()
