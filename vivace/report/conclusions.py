"""Why a tune recommends nothing: a title and a sentence for each kind of conclusion."""

from __future__ import annotations

from vivace.records.proof import Conclusion, Proof, Rejection
from vivace.report.figures import counted, plain

__all__ = ["nothing_sentence", "nothing_title"]

_TITLES = {
    Conclusion.NOT_ENOUGH_TIME: "Not enough time to try anything",
    Conclusion.HARMFUL: "Faster, but the losses changed",
    Conclusion.FAILED: "Faster, but not proved",
    Conclusion.UNJUDGED: "Could not be judged on this machine",
    Conclusion.NOT_PROVED: "No gain could be proved",
    Conclusion.NO_GAIN: "Nothing tried beats the noise",
}


def nothing_title(proof: Proof) -> str:
    return _TITLES[proof.conclusion]


def nothing_sentence(proof: Proof) -> str:
    """Without a full stop at its end."""
    kind = proof.conclusion
    if kind is Conclusion.NOT_ENOUGH_TIME:
        return "No verdict: not enough time to try anything"
    if kind is Conclusion.HARMFUL:
        return "Nothing is recommended: the faster set changes the training"
    if kind is Conclusion.FAILED:
        return f"Nothing is recommended: a run of the proof failed ({proof.ended})"
    if kind is Conclusion.UNJUDGED:
        return _unjudged(proof)
    if kind is Conclusion.NOT_PROVED:
        return "No gain could be proved: the paired runs differ too much to be sure of what seemed faster"
    return "No practice made this job faster"


def _unjudged(proof: Proof) -> str:
    settled = sum(rejected.reason is Rejection.NO_GAIN for rejected in proof.rejected)
    open_ = sum(rejected.reason in (Rejection.UNJUDGED, Rejection.NOT_PROVED) for rejected in proof.rejected)
    what = f"{open_} of {counted(open_ + settled, 'practice')} could not" if settled else "Could not"
    others = f"; the other {settled} brought nothing" if settled else ""
    return f"{what} be judged on this machine: {_how_unsteady(proof)}{others}"


def _how_unsteady(proof: Proof) -> str:
    varied = proof.unchanged
    if varied is None or not varied.is_unsteady:
        return "runs of the same job differ too much"
    return f"the unchanged job itself varied from {plain(varied.low)} to {plain(varied.high)} {varied.unit}/s"
