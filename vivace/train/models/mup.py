"""µP for the GPT: tune a narrow model, train a wide one with the same learning rate.

Yang et al. 2022, "Tensor Programs V" (arXiv 2203.03466), table 8, for Adam, told relative to a base width. A model
``ratio`` times as wide as its base has, against the base:

- hidden matrices: first values smaller by √ratio, learning rate smaller by ratio;
- logits smaller by ratio (the output's weights and rate stay, so they may be tied to the embedding);
- attention scores divided by the heads' size, not its root (definition 4.1), and equal at the base's heads;
- embeddings, biases and norms: nothing.

The ratio is the same for every matrix: all widths are taken to grow in proportion. Called by recipes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from vivace.records.transformer import TransformerSizes
from vivace.train.models.gpt import GPT, Attention, CausalAttention
from vivace.train.models.initial import Rule, gpt_rule

__all__ = ["MuP"]


@dataclass(frozen=True)
class MuP:
    """How a model of these ``sizes`` differs from its base."""

    sizes: TransformerSizes
    base_width: int
    base_heads: int

    @property
    def ratio(self) -> float:
        return self.sizes.hidden / self.base_width

    @staticmethod
    def is_hidden(name: str, dimensions: int) -> bool:
        """Whether a parameter is a matrix between two widths that both grow."""
        return dimensions > 1 and name.startswith("blocks.")

    def rule(self) -> Rule:
        """The first values: GPT-2's, smaller in hidden matrices."""
        plain = gpt_rule(self.sizes.layers)

        def scaled(name: str, shape: tuple[int, ...]) -> tuple[float, float]:
            mean, deviation = plain(name, shape)
            return mean, deviation / math.sqrt(self.ratio) if self.is_hidden(name, len(shape)) else deviation

        return scaled

    def attention_scale(self) -> float:
        """1/√d of the base's heads, and 1/d from there on."""
        heads_size, base = self.sizes.hidden / self.sizes.heads, self.base_width / self.base_heads
        return math.sqrt(base) / heads_size

    def scale(self, model: GPT) -> None:
        """Set the factors of logits and attention scores. At the base nothing is touched, to the last bit."""
        model.logit_factor = 1 / self.ratio
        if self.sizes.hidden * self.base_heads == self.base_width * self.sizes.heads:
            return  # heads of the base's size
        for block in model.blocks.values():
            attention = block.attention
            assert isinstance(attention, Attention)
            assert isinstance(attention.core, CausalAttention)
            attention.core.scale = self.attention_scale()
