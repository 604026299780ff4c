"""Does a tuned job still train the same? Three tests over pairs of runs with the same seed, each for what it sees best.

``first_step``: weights and batch are the same on both sides, so gradients and updates differ by the practice alone.
``paired_losses``: step by step, as long as the two runs still go together. ``seed_band``: over the rest, where rounding
has driven them as far apart as another seed does. ``judging`` puts the three together; ``claims`` says how much a set
of practices may differ.
"""

from vivace.tune.harm.claims import Claims, claims_of
from vivace.tune.harm.judging import HarmLook, judge

__all__ = ["Claims", "HarmLook", "claims_of", "judge"]
