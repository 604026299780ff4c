"""The loop of ``vivace train`` on two ranks that are forks of one process: a job for ``chaos_faults.py``.

python benchmarks/chaos_train.py FOLDER [HUNG_STEP_S]
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

from benchmarks.forked_ranks import RanksFailed, on_ranks  # noqa: E402
from vivace.errors import UserError  # noqa: E402
from vivace.records.layout import parse_layout  # noqa: E402
from vivace.train import loop  # noqa: E402
from vivace.train.saving import TrainCheckpoints  # noqa: E402
from vivace.train.settings import TrainSettings, with_changes  # noqa: E402

CHANGES = (
    "data.seq_len=8", "sizes.layers=2", "sizes.hidden=16", "sizes.vocab=32", "log_every=1", "steps=30",
    "checkpoints.every_steps=5",
)  # fmt: skip


def main() -> None:
    folder = Path(sys.argv[1]).absolute()
    where = f"checkpoints.folder={folder}"
    hung = [f"watch.hung_step_s={sys.argv[2]}"] if len(sys.argv) > 2 else []
    settings = with_changes(TrainSettings(layout=parse_layout("dp2,mb4")), (*CHANGES, where, *hung))

    def work() -> None:
        try:
            loop.train(settings, None, TrainCheckpoints(settings))
        except UserError as error:
            print(f"vivace: {error}", file=sys.stderr, flush=True)
            raise

    try:
        on_ranks(2, work, timeout_s=400)
    except RanksFailed:
        sys.exit(1)


if __name__ == "__main__":
    main()
