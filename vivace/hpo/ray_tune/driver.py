"""The worker of a study whose engine is Ray Tune: it leads one experiment of Ray's until nothing is left.

Killed, it is replaced like any worker, and its trials are queued again.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

from vivace.hpo.asked import Asked
from vivace.hpo.ledger import Ledger, Part
from vivace.hpo.pruning import full_length
from vivace.hpo.ray_tune.cluster import check_ray, running_cluster
from vivace.hpo.ray_tune.results import OWN, mode_of

__all__ = ["drive"]

_JOIN_S = 0.2


def drive(ledger: Ledger, worker: str, stop: threading.Event, say: Callable[[str], None]) -> None:
    """Until the study is over, or ``stop`` is set: then what runs is given back."""
    check_ray()
    asked = ledger.asked
    with running_cluster(ledger.folder, asked.workers, asked.gpus_per_trial and _gpus_here(), say) as cluster:
        from vivace.hpo.ray_tune.searcher import LedgerSearcher

        searcher = LedgerSearcher(ledger, worker, cluster.slots, stop, say)
        try:
            _in_thread(lambda: _experiment(asked, ledger, searcher, stop))
        finally:
            searcher.give_back_all()


def _experiment(asked: Asked, ledger: Ledger, searcher: Any, stop: threading.Event) -> None:
    from ray import tune

    from vivace.hpo.ray_tune.scheduler import FromTheFirstWholeTrial, StopWhenAsked
    from vivace.hpo.ray_tune.trial import RayTrial

    length = full_length(ledger.trials(Part.SEARCH))
    tuner = tune.Tuner(
        tune.with_resources(RayTrial, {"cpu": 1, "gpu": asked.gpus_per_trial}),
        tune_config=tune.TuneConfig(
            num_samples=-1, max_concurrent_trials=asked.workers, search_alg=searcher, reuse_actors=True,
            scheduler=FromTheFirstWholeTrial(asked.pruner, mode_of(asked), length), trial_dirname_creator=_name,
        ),
        run_config=tune.RunConfig(
            name="ray", storage_path=str(ledger.folder.absolute()), verbose=0,
            stop=StopWhenAsked(stop), checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
        ),
    )  # fmt: skip
    tuner.fit()


def _name(trial: Any) -> str:
    own = trial.config[OWN]
    return f"{own['part']}-{own['number']}"


def _in_thread(run: Callable[[], None]) -> None:
    """Signals stay with vivace: Ray takes them over where it runs in the main thread."""
    failed: list[BaseException] = []

    def body() -> None:
        try:
            run()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=body, name="ray-tune", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(_JOIN_S)
    if failed:
        raise failed[0]


def _gpus_here() -> int:
    from vivace.hardware.gpu import read_gpus

    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    found = len(read_gpus(None, []).gpus)
    return min(found, len(named.split(","))) if named else found
