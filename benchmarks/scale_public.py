"""Public training scripts, unedited, over two ranks: the same numbers as one process? Nothing of theirs is kept here.

    PYTHONPATH=… python benchmarks/scale_public.py CHECKOUTS [--modes ddp zero1 fsdp] [--only mnist,adder]

CHECKOUTS holds a folder for each repository, as GitHub names it. Data are generated: MNIST and CIFAR by a torchvision
on PYTHONPATH that makes images up, texts below CHECKOUTS/text (train.txt, valid.txt, test.txt). Each script is started
with a seed and stopped after some optimizer steps, where sums over its parameters and the next random numbers are
printed. Those that take any dtype run in fp64. Writes ``results/scale_public.csv``: the largest relative difference of
any printed number (times left out).
"""

from __future__ import annotations

import argparse
import csv
import os
import re
import sys
import tempfile
from pathlib import Path

from scale_equality import _import_once, difference, run

RESULTS = Path(__file__).resolve().parent / "results" / "scale_public.csv"
WORDS = "--emsize 32 --nhid 32 --nlayers 2 --epochs 1 --bptt 12 --log-interval 2 --data {checkouts}/text"
NAMES = "makemore.py -i {checkouts}/makemore/names.txt -n 0 --max-steps 8 --n-embd 32"
IMAGES = "--n_epochs 1 --batch_size 16 --sample_interval 4"
GAN, TUTORIALS = "PyTorch-GAN/implementations", "pytorch-tutorial/tutorials"
# name → folder, command, optimizer steps, fp64
SCRIPTS: dict[str, tuple[str, str, int, bool]] = {
    "mnist": ("examples/mnist", "main.py --epochs 1 --batch-size 32 --log-interval 2 --no-accel", 4, True),
    "mnist_rnn": ("examples/mnist_rnn", "main.py --epochs 1 --batch-size 32 --log-interval 2", 4, True),
    "vae": ("examples/vae", "main.py --epochs 1 --batch-size 32 --log-interval 2 --no-accel", 3, True),
    "dcgan": (
        "examples/dcgan",
        "main.py --dataset cifar10 --dataroot . --niter 1 --batchSize 16 --ngf 8 --ndf 8 --workers 0 --manualSeed 1",
        8,
        True,
    ),
    "regression": ("examples/regression", "main.py", 200, True),
    "imagenet": ("examples/imagenet", "main.py --dummy --epochs 1 -b 8 -j 0 -p 1 -a resnet18", 3, True),
    "word_language_model, LSTM": ("examples/word_language_model", f"main.py {WORDS}", 12, True),
    "word_language_model, Transformer": (
        "examples/word_language_model", f"main.py --model Transformer --nhead 2 {WORDS}", 12, True,
    ),
    "minGPT adder": (
        "minGPT/projects/adder",
        "adder.py --trainer.max_iters=6 --trainer.num_workers=0 --trainer.batch_size=12", 6, True,
    ),
    "makemore, transformer": ("makemore", f"{NAMES} --n-layer 2", 8, True),
    "makemore, GRU": ("makemore", f"{NAMES} --type gru", 8, True),
    "makemore, bag of words": ("makemore", f"{NAMES} --type bow", 8, True),
    "x-transformers, copy": ("x-transformers", "train_copy.py", 3, True),
    "tutorial: bidirectional LSTM": (
        f"{TUTORIALS}/02-intermediate", "bidirectional_recurrent_neural_network/main.py", 4, True,
    ),
    "tutorial: VAE": (TUTORIALS, "03-advanced/variational_autoencoder/main.py", 4, True),
    "WGAN-GP": (f"{GAN}/wgan_gp", f"wgan_gp.py {IMAGES}", 7, False),
    "ACGAN": (f"{GAN}/acgan", f"acgan.py {IMAGES} --img_size 32", 7, False),
    "InfoGAN": (f"{GAN}/infogan", f"infogan.py {IMAGES} --img_size 32", 7, False),
    "AAE": (f"{GAN}/aae", f"aae.py {IMAGES} --img_size 32", 7, False),
}  # fmt: skip
START = """
import os, random, runpy, sys, warnings
warnings.filterwarnings("ignore")
os.environ["MPLBACKEND"] = "Agg"
import numpy, torch
from torch.optim.optimizer import register_optimizer_step_post_hook

folder, words, steps, fp64 = {folder!r}, {words!r}, {steps!r}, {fp64!r}
script = os.path.join(folder, words[0])
above = [os.path.dirname(os.path.dirname(folder))]  # of a project inside a repository: its package
sys.path[:0] = [folder, os.path.dirname(script), *above]
os.makedirs("results", exist_ok=True)
torch.manual_seed(0), random.seed(0), numpy.random.seed(0)
if fp64:
    torch.set_default_dtype(torch.float64)
count = 0


def stop(optimizer, *_):
    global count
    count += 1
    if count == steps:
        sums = [sum(p.abs().sum().item() for p in group["params"]) for group in optimizer.param_groups]
        print("stopped", *sums, torch.rand(1).item(), random.random(), numpy.random.rand())
        sys.exit(0)


stop._torchdynamo_disable = True
register_optimizer_step_post_hook(stop)
sys.argv = [script, *words[1:]]
runpy.run_path(script, run_name="__main__")
"""
TIMES = re.compile(
    r"time\s+[\d.]+(e-\d+)?|[\d.]+\s?ms|ms/batch\s+[\d.]+|(Time|Data|time)\s*:?\s*[\d.]+\s*(\([\d. ]+\))?"
)


def compared(name: str, modes: list[str], checkouts: Path) -> list[dict[str, object]]:
    folder, command, steps, fp64 = SCRIPTS[name]
    words = [word.format(checkouts=checkouts) for word in command.split()]
    rows = []
    with tempfile.TemporaryDirectory() as work:
        start = Path(work) / "start.py"
        start.write_text(START.format(folder=str(checkouts / folder), words=words, steps=steps, fp64=fp64))
        (Path(work) / "one").mkdir()
        alone = run(start, 1, "", Path(work) / "one")
        assert alone.code == 0, alone.errors
        for mode in modes:
            (Path(work) / mode).mkdir()
            together = run(start, 2, mode, Path(work) / mode)
            found = difference(TIMES.sub("", alone.printed), TIMES.sub("", together.printed))
            if together.code:
                print(together.errors[-2000:], file=sys.stderr)
            rows.append({
                "script": name, "repository": folder.split("/")[0], "mode": mode, "ranks": 2, "steps": steps,
                "dtype": "float64" if fp64 else "float32",
                "largest_relative_difference": f"exit code {together.code}" if together.code else
                "other lines" if found is None else f"{found:.1e}",
                "as_many_files": "yes" if len(together.files) == len(alone.files) else "no",
                "gathered": together.gathered, "told": together.told,
            })  # fmt: skip
            print(*rows[-1].values(), sep="  ", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", type=Path)
    parser.add_argument("--modes", nargs="+", default=["ddp", "zero1", "fsdp"])
    parser.add_argument("--only", default="")
    asked = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        fresh = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **fresh})
    _import_once()
    rows: list[dict[str, object]] = []
    for name in asked.only.split(",") if asked.only else SCRIPTS:
        rows += compared(name, asked.modes, asked.checkouts.resolve())
        with RESULTS.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0].keys())
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
