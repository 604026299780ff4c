"""``Structure``: what a measured training job is made of. Part of a ``Measurement``; the evidence of the practices."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from vivace.records.base import Part

__all__ = ["Cell", "Layer", "Optimizer", "Recurrent", "Root", "Spot", "Structure", "Wrapper"]


class Spot(Part):
    """A line of the user's code, with how often something happened there."""

    file: str
    line: int
    code: str = ""
    forwards: int | None = None
    copies: int | None = None
    mib: float | None = None
    made_ms: float | None = Field(None, description="what the host takes to make the tensors, per step")


class Root(Part):
    name: str
    parameters: int


class Layer(Part):
    """A product of the forward, as the matrix product (m × k) · (k × n) that it amounts to."""

    kind: str = Field(description="'matmul' or 'convolution'")
    m: int
    n: int
    k: int
    arithmetic: str
    groups: int = 1
    calls: int
    share: float = Field(description="of the products' FLOPs in the forward")


class Recurrent(Part):
    """An RNN, LSTM or GRU: its products run inside one operator, so that no ``Layer`` shows them."""

    name: str
    inputs: int
    hidden: int


class Cell(Part):
    """An LSTMCell, GRUCell or RNNCell that the script calls once for every position in time."""

    name: str
    inputs: int
    hidden: int
    calls: int = Field(description="in the forwards of one step")
    where: Spot | None = None


class Optimizer(Part):
    name: str
    fused: bool | None = None
    foreach: bool | None = None
    has_fused: bool = Field(False, description="whether its class knows the option")
    has_foreach: bool = Field(False, description="whether its class knows the option")
    tensors: int = 0
    device: str | None = None
    where: Spot | None = None


class Wrapper(Part):
    """DataParallel or DistributedDataParallel, with the options that matter for speed."""

    name: str
    options: dict[str, Any] = Field(default_factory=dict)
    where: Spot | None = None


class Structure(Part):
    roots: tuple[Root, ...] = ()
    modules: dict[str, int] = Field(default_factory=dict, description="convolution, norm, linear, recurrent, …")
    parameter_dtypes: dict[str, int] = Field(default_factory=dict)
    conv_weights_channels_last: float | None = Field(None, description="share; None without 2-D convolutions")
    biases_before_norm: tuple[str, ...] = ()
    repeated_blocks: dict[str, int] = Field(default_factory=dict)
    optimizers: tuple[Optimizer, ...] = ()
    wrappers: tuple[Wrapper, ...] = ()
    debugging: tuple[str, ...] = ()
    debugging_where: dict[str, Spot] = Field(default_factory=dict, description="the line that switched each of them on")
    allocator: str = ""
    threads: int | None = None
    autocast: str | None = Field(None, description="dtype of the autocast around the model; it may be 'float32'")
    eval_with_grad: tuple[Spot, ...] = ()
    padding_share: float | None = None
    layers: tuple[Layer, ...] = ()
    recurrent: tuple[Recurrent, ...] = ()
    cells: tuple[Cell, ...] = ()
    attention: dict[str, int] = Field(default_factory=dict, description="fused attention operators → calls")
    softmax_squares: int = 0
    unfused_by_torch: int = Field(0, description="of these, in torch's own attention, where no fused kernel fits")
    attention_setting: str | None = Field(None, description="a transformers model's attn_implementation")
    host_made: tuple[Spot, ...] = Field((), description="tensors made on the host and then copied to the device")

    @property
    def mixed_precision(self) -> bool:
        """Whether the model runs under autocast in 16 bits. Autocast to float32 does nothing."""
        return self.autocast in ("bfloat16", "float16")
