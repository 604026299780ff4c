"""What a transformer is to the planner: its sizes, and the parameters that follow from them.

Pure arithmetic; touches nothing. Called by every other module of ``vivace.plan``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from vivace.records.transformer import Positions

__all__ = ["Positions", "Transformer"]


@dataclass(frozen=True)
class Transformer:
    """A decoder (or encoder) stack of equal layers. Sizes are counts, never bytes."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    seq_len: int
    gated: bool = False
    """SwiGLU or GeGLU: three matrices of hidden x ffn instead of two."""
    biases: bool = True
    tied: bool = True
    """The output layer shares the embedding's weights."""
    positions: Positions = "learned"
    dropout: bool = True
    causal: bool = True
    predicted_share: float = 1.0
    """Share of the positions that the output layer and the loss see: a masked model's recipes gather the
    masked ones.
    """
    head_dim_given: int = 0
    """Only when it is not hidden / heads."""
    position_rows: int = 0
    """Learned positions, when they are not as many as the sequence is long."""
    layer_vectors_given: int | None = None
    """Norms and biases of one layer, when they are not those that ``biases`` implies."""
    outer_vectors_given: int | None = None
    """Final norm and whatever else lies outside the layers beside the embedding and the output matrix."""
    window: int = 0
    """Tokens that a query of the ``windowed_layers`` looks back on; 0: the whole sequence."""
    windowed_layers: int = 0

    @property
    def head_dim(self) -> int:
        return self.head_dim_given or self.hidden // self.heads

    @property
    def attention_width(self) -> int:
        """Width of the queries: heads x head size (hidden, in nearly every model)."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.head_dim

    @property
    def ffn_matrices(self) -> int:
        return 3 if self.gated else 2

    @cached_property
    def attention_parameters(self) -> int:
        """Q, K, V and output projections of one layer."""
        weights = self.hidden * (2 * self.attention_width + 2 * self.kv_width)
        biases = self.attention_width + 2 * self.kv_width + self.hidden if self.biases else 0
        return weights + biases

    @cached_property
    def ffn_parameters(self) -> int:
        """The feed-forward block of one layer."""
        weights = self.ffn_matrices * self.hidden * self.ffn
        return weights + ((self.ffn_matrices - 1) * self.ffn + self.hidden if self.biases else 0)

    @property
    def norm_parameters(self) -> int:
        """Two norms of one layer: scale and shift, or scale only."""
        return 2 * self.hidden * (2 if self.biases else 1)

    @cached_property
    def layer_matrices(self) -> int:
        """Parameters of one layer that every token multiplies with."""
        attention = self.hidden * (2 * self.attention_width + 2 * self.kv_width)
        return attention + self.ffn_matrices * self.hidden * self.ffn

    @cached_property
    def layer_parameters(self) -> int:
        if self.layer_vectors_given is not None:
            return self.layer_matrices + self.layer_vectors_given
        return self.attention_parameters + self.ffn_parameters + self.norm_parameters

    @property
    def embedding_parameters(self) -> int:
        rows = (self.position_rows or self.seq_len) if self.positions == "learned" else 0
        return (self.vocab + rows) * self.hidden

    @property
    def head_parameters(self) -> int:
        """What the output layer adds: the final norm, and its own matrix unless tied."""
        vectors = self.hidden * (2 if self.biases else 1)
        vectors = vectors if self.outer_vectors_given is None else self.outer_vectors_given
        return vectors + (0 if self.tied else self.vocab * self.hidden)

    @property
    def parameters(self) -> int:
        return self.layers * self.layer_parameters + self.embedding_parameters + self.head_parameters

    @property
    def matmul_parameters(self) -> int:
        """Parameters that every token multiplies with: the layers' matrices and the output layer."""
        return self.layers * self.layer_matrices + self.output_parameters

    def attention_share(self, seq_len: int) -> float:
        """Share of the attention scores that sliding windows leave, on average over the layers.

        A causal query sees up to ``window`` tokens: w/s (2 - w/s) of what it would see without.

        >>> Transformer("", 2, 8, 1, 1, 8, 8, 8, window=2, windowed_layers=2).attention_share(4)
        0.75
        """
        if not self.windowed_layers or self.window >= seq_len:
            return 1.0
        part = self.window / seq_len
        return 1.0 - self.windowed_layers / self.layers * (1.0 - part * (2.0 - part))

    @property
    def output_parameters(self) -> int:
        """The output layer's, as far as an average token multiplies with them."""
        return round(self.vocab * self.hidden * self.predicted_share)
