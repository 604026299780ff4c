"""Optimizers for large batches and beyond. Those that torch has (AdamW, NAdam, SGD) are torch's own.

    from vivace.methods.optim import Lamb

    optimizer = Lamb(model.parameters(), lr=0.02, weight_decay=0.01)

They update many tensors at once (``foreach``), keep parameter groups, and load what they saved. Sparse gradients are
refused.
"""

from vivace.methods.optim.lamb import Lamb
from vivace.methods.optim.lars import Lars
from vivace.methods.optim.lion import Lion
from vivace.methods.optim.muon import Muon
from vivace.methods.optim.schedule_free import ScheduleFreeAdamW
from vivace.methods.optim.shampoo import Shampoo

__all__ = ["Lamb", "Lars", "Lion", "Muon", "ScheduleFreeAdamW", "Shampoo"]
