"""Samples of different lengths with little padding: batches of constant token count, and packed sequences."""

from vivace.methods.lengths.packing import Packed, fill_rows, pack
from vivace.methods.lengths.token_batches import TokenBatches

__all__ = ["Packed", "TokenBatches", "fill_rows", "pack"]
