"""The proof of ``vivace run --ranks`` on scripts of ``tests/scale/zoo`` in fp32, and of options that change them.

    python benchmarks/scale_proofs.py [--ranks 2] [--only cnn,lstm]

The zoo is written in fp64; here the line that says so is left out. Writes ``results/scale_proofs.csv``: how far the
first gradient and the losses of ranks lie from those of one process, which is what rounding does, beside the difference
that a proof allows. The first rows train the CNN to its end in fp64 with ``--local-bn`` and ``--scale-batch``, on ranks
and as one process that does the same: the largest relative difference of any printed number.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
import tempfile
from pathlib import Path

from scale_equality import difference

from vivace.tune.ranks.proving import prove_equal

ROOT = Path(__file__).resolve().parent.parent
ZOO = ROOT / "tests" / "scale" / "zoo"
SCRIPTS = ("cnn", "char_gpt", "lstm", "vae", "encoder", "contrastive", "gan", "ema")
OPTIONS = {
    "local_bn": (["--local-bn"], "local_bn=2"),
    "scale_batch, linear": (["--scale-batch", "--lr-rule", "linear"], "scale_batch=2:linear"),
}
FIELDS = (
    "script", "mode", "ranks", "dtype", "options", "compared", "gradient_difference", "allowed", "steps",
    "first_loss_difference", "largest_difference", "says",
)  # fmt: skip


def prove(script: str, mode: str, ranks: int, folder: Path) -> dict[str, object]:
    path = folder / f"{script}.py"
    path.write_text((ZOO / f"{script}.py").read_text().replace("torch.set_default_dtype(torch.float64)\n", ""))
    found = prove_equal([sys.executable, str(path)], mode, (), ranks, folder / "proof", lambda _side: None)
    return {
        "script": script, "mode": mode, "ranks": ranks, "dtype": "float32", "options": "", "compared": "first steps",
        "gradient_difference": found.gradient and f"{found.gradient:.1e}", "allowed": found.allowed,
        "steps": len(found.losses), "first_loss_difference": f"{found.losses[0]:.1e}" if found.losses else "",
        "largest_difference": f"{max(found.losses):.1e}" if found.losses else "", "says": found.says,
    }  # fmt: skip


def train(name: str, ranks: int, folder: Path) -> dict[str, object]:
    """Both to their end."""
    options, words = OPTIONS[name]
    script = [sys.executable, str(ZOO / "cnn.py")]
    vivace = [sys.executable, "-m", "vivace", "run"]
    split = [*vivace, "--ranks", str(ranks), "--no-prove", *options, "--", *script]
    alone = [*vivace, "--with", words.replace("=2", f"={ranks}"), "--", *script]
    printed = []
    for command in (alone, split):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=900)
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout)
    found = difference(*printed)
    return {
        "script": "cnn", "mode": "ddp", "ranks": ranks, "dtype": "float64", "options": name,
        "compared": "all printed numbers", "gradient_difference": "", "allowed": "", "steps": "",
        "first_loss_difference": "", "largest_difference": "other lines" if found is None else f"{found:.1e}",
        "says": "against one process that does the same",
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--only", default="")
    asked = parser.parse_args()
    chosen = asked.only.split(",") if asked.only else [*OPTIONS, *SCRIPTS]
    rows = []
    for name in chosen:
        with tempfile.TemporaryDirectory() as folder:
            make = train(name, asked.ranks, Path(folder)) if name in OPTIONS else None
            rows.append(make or prove(name, "ddp", asked.ranks, Path(folder)))
        print(*rows[-1].values(), sep="  ", flush=True)
        if not asked.only:
            with (ROOT / "benchmarks" / "results" / "scale_proofs.csv").open("w", newline="") as file:
                writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)


if __name__ == "__main__":
    main()
