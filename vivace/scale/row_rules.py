"""What torch's functions do with the rows of a rank. A function without a rule here gathers the batch.

The rules go by the function's name: ``torch.add``, ``Tensor.add`` and ``+`` are one. They look at sizes and dimensions
only, so every rank decides alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_map

from vivace.scale.crossing import add_up, enter
from vivace.scale.layout import Layout
from vivace.scale.rows import RULES, UNKNOWN, Rows, part_or_none

__all__ = ["pointwise_parts"]

_OF_ONE = """
    abs absolute acos acosh angle arccos arcsin arctan asin asinh atan atanh bfloat16 bitwise_not bool byte ceil
    celu clamp clamp_max clamp_min clip clone contiguous cos cosh cpu cuda deg2rad digamma double elu erf erfc
    erfinv exp exp2 expm1 float floor frac gelu half hardsigmoid hardswish hardtanh int isfinite isinf isnan
    leaky_relu lgamma log log10 log1p log2 logical_not logit logsigmoid long mish nan_to_num neg negative positive
    rad2deg reciprocal relu relu6 round rsqrt selu short sigmoid sign silu sin sinh softplus softsign sqrt square
    tan tanh tanhshrink to trunc type __abs__ __neg__ __pos__ __invert__
"""
_OF_SEVERAL = """
    add addcdiv addcmul atan2 bitwise_and bitwise_or bitwise_xor copysign div divide eq floor_divide fmax fmin fmod
    ge greater greater_equal gt hypot le lerp less less_equal logaddexp logical_and logical_or logical_xor lt
    maximum minimum mul multiply ne not_equal pow remainder rsub sub subtract true_divide type_as where xlogy
    masked_fill __add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__ __rtruediv__ __floordiv__
    __rfloordiv__ __mod__ __pow__ __rpow__ __and__ __rand__ __or__ __ror__ __xor__ __rxor__ __eq__ __ne__ __lt__
    __le__ __gt__ __ge__ __rdiv__ __div__
"""
_IN_PLACE = """
    add_ sub_ mul_ div_ clamp_ neg_ exp_ sqrt_ sigmoid_ relu_ tanh_ masked_fill_ __iadd__ __isub__ __imul__
    __itruediv__
"""
_OVER_OTHER_DIMS = """
    softmax log_softmax softmin cumsum cumprod logsumexp amax amin argmax argmin argsort sort topk sum mean std var
    norm prod all any max min median normalize count_nonzero
"""
_LOOKED_AT = """
    size dim ndimension numel nelement element_size is_floating_point is_complex __len__ stride get_device
    shape.__get__ dtype.__get__ device.__get__ ndim.__get__ layout.__get__ is_cuda.__get__ is_cpu.__get__
    is_sparse.__get__ is_mps.__get__ is_quantized.__get__ is_meta.__get__ itemsize.__get__ nbytes.__get__
    names.__get__ is_xpu.__get__ __hash__ is_nested.__get__ is_mkldnn.__get__
"""


def _looked_at(func: Any, args: Any, kwargs: Any) -> Any:
    """Answered by the wrapper, which has the whole's shape."""
    with torch._C.DisableTorchFunctionSubclass():
        return func(*args, **kwargs)


def _requires_grad(_func: Any, args: Any, _kwargs: Any) -> Any:
    part = part_or_none(args[0])
    return UNKNOWN if part is None else part.requires_grad


# -- sample by sample ------------------------------------------------------------------------------------------------


def pointwise_parts(values: Sequence[Any]) -> tuple[list[Any], Layout, Rows] | None:
    """The operands of a function that works entry by entry, cut to the rank's rows; None where they do not match."""
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    try:
        shape = torch.broadcast_shapes(*(value.shape for value in tensors))
    except RuntimeError:  # the script's own mistake: let torch say it
        return None
    rows = [value for value in tensors if isinstance(value, Rows)]
    layouts = {each._layout.at(len(shape) - each.dim() + each._layout.dim) for each in rows}
    if len(layouts) != 1 or any(part_or_none(each) is None for each in rows):
        return None
    (layout,) = layouts
    if shape[layout.dim] != layout.whole_size:
        return None
    return [_operand(value, layout, len(shape), rows[0]) for value in values], layout, rows[0]


def _operand(value: Any, layout: Layout, dims: int, rows: Rows) -> Any:
    if isinstance(value, Rows):
        return part_or_none(value)
    if not isinstance(value, torch.Tensor):
        return value
    own = layout.dim - (dims - value.dim())
    if own < 0 or value.size(own) == 1:
        return enter(value, rows._group)
    return layout.at(own).cut(value, rows._group)


def _pointwise(func: Any, args: Any, kwargs: Any) -> Any:
    if any(isinstance(value, torch.Tensor) for value in kwargs.values()) or _nested(args):
        return UNKNOWN
    found = pointwise_parts(args)
    if found is None:
        return UNKNOWN
    parts, layout, rows = found
    return _rewrapped(func(*parts, **kwargs), layout, rows, args)


def _rewrapped(result: Any, layout: Layout, rows: Rows, args: Any) -> Any:
    if not isinstance(result, torch.Tensor):
        return result
    same = next((each for each in args if isinstance(each, Rows) and part_or_none(each) is result), None)
    return Rows.of(result, layout, rows._group) if same is None else same  # .to() of what is there already


def _to(func: Any, args: Any, kwargs: Any) -> Any:
    """``to(device)``, ``to(dtype)``, ``to(other)``: the other tells its kind and nothing else."""
    part = part_or_none(args[0]) if isinstance(args[0], Rows) else None
    if part is None:
        return UNKNOWN
    rest = [value.new_empty(()) if isinstance(value, Rows) else value for value in args[1:]]
    return _rewrapped(func(part, *rest, **kwargs), args[0]._layout, args[0], args)


def _in_place(func: Any, args: Any, kwargs: Any) -> Any:
    """The rank's rows are changed, and with them every view of them."""
    if not isinstance(args[0], Rows) or kwargs or _nested(args):
        return UNKNOWN
    found = pointwise_parts(args)
    if found is None or found[1] != args[0]._layout:
        return UNKNOWN
    func(*found[0])
    return args[0]


def _nested(args: Any) -> bool:
    return any(isinstance(value, (list, tuple, dict)) for value in args)


# -- over other dimensions than the batch's, or over all of them ----------------------------------------------------


def _over_dims(func: Any, args: Any, kwargs: Any) -> Any:
    rows = args[0]
    if not isinstance(rows, Rows) or (part := part_or_none(rows)) is None:
        return UNKNOWN
    if any(isinstance(value, torch.Tensor) for value in (*args[1:], *kwargs.values())):
        return UNKNOWN
    name = str(func.__name__)
    dims, keepdim = _dims_asked(name, rows.dim(), args[1:], kwargs)
    if dims is None:
        return UNKNOWN
    if rows._layout.dim not in dims:
        gone = 0 if keepdim else sum(dim < rows._layout.dim for dim in dims)
        layout = rows._layout.at(rows._layout.dim - gone)
        return tree_map(lambda leaf: _rewrapped(leaf, layout, rows, ()), func(part, *args[1:], **kwargs))
    if name == "sum":
        return add_up(func(part, *args[1:], **kwargs), 1.0, rows._group)
    if name == "mean":
        return add_up(func(part, *args[1:], **kwargs), rows._layout.part_size / rows._layout.whole_size, rows._group)
    return UNKNOWN


_KEEPS_SHAPE = frozenset(
    ["softmax", "log_softmax", "softmin", "cumsum", "cumprod", "argsort", "sort", "topk", "normalize"]
)
_BOUND = {"topk": 1, "norm": 1, "normalize": 1}  # positional arguments before ``dim``
_DEFAULT_DIM = {"sort": -1, "topk": -1, "argsort": -1, "normalize": 1}


def _dims_asked(name: str, count: int, words: Any, kwargs: Any) -> tuple[tuple[int, ...] | None, bool]:
    """The dimensions that the function goes over (all of them where none is named), and whether they stay."""
    before = _BOUND.get(name, 0)
    dim = kwargs.get("dim", words[before] if len(words) > before else _DEFAULT_DIM.get(name))
    keepdim = name in _KEEPS_SHAPE or bool(
        kwargs.get("keepdim", words[before + 1] if len(words) > before + 1 else False)
    )
    if dim is None:
        return (tuple(range(count)) if name in ("sum", "mean") else None), keepdim
    asked = (dim,) if isinstance(dim, int) else dim
    if (
        isinstance(dim, bool)
        or not isinstance(asked, (tuple, list))
        or not all(isinstance(each, int) for each in asked)
    ):
        return None, keepdim
    return tuple(each % count for each in asked) or tuple(range(count)), keepdim


# -- with a matrix, an index, or only the shape ----------------------------------------------------------------------


def _times_matrix(func: Any, args: Any, kwargs: Any) -> Any:
    """``x @ w``, ``linear(x, w, b)``: each row by itself, as long as the others have no rows."""
    rows, others = args[0], [*args[1:], *kwargs.values()]
    if not isinstance(rows, Rows) or (part := part_or_none(rows)) is None:
        return UNKNOWN
    plain = [value for value in others if isinstance(value, torch.Tensor)]
    if any(isinstance(value, Rows) or value.dim() > 2 for value in plain) or rows._layout.dim == rows.dim() - 1:
        return UNKNOWN
    known = [enter(value, rows._group) if isinstance(value, torch.Tensor) else value for value in args[1:]]
    named = {name: enter(v, rows._group) if isinstance(v, torch.Tensor) else v for name, v in kwargs.items()}
    return _rewrapped(func(part, *known, **named), rows._layout, rows, ())


def _picked(func: Any, args: Any, kwargs: Any) -> Any:
    """``gather(dim, index)`` along another dimension than the batch's."""
    if kwargs or len(args) != 3 or not isinstance(args[0], Rows) or not isinstance(args[1], int):
        return UNKNOWN
    rows, dim, index = args
    part, layout = part_or_none(rows), rows._layout
    if part is None or dim % rows.dim() == layout.dim or index.size(layout.dim) != layout.whole_size:
        return UNKNOWN
    if isinstance(index, Rows):
        own = part_or_none(index)
        if own is None or index._layout != layout:
            return UNKNOWN
    else:
        own = layout.cut(index, rows._group)
    return _rewrapped(func(part, dim, own), layout, rows, ())


def _one_hot(func: Any, args: Any, kwargs: Any) -> Any:
    classes = kwargs.get("num_classes", args[1] if len(args) > 1 else -1)
    if not isinstance(args[0], Rows) or (part := part_or_none(args[0])) is None or classes < 0:
        return UNKNOWN
    return _rewrapped(func(part, classes), args[0]._layout, args[0], ())


def _like(func: Any, args: Any, kwargs: Any) -> Any:
    """``zeros_like``, ``randn_like``: the whole's shape is enough, and draws are those of one process."""
    if not isinstance(args[0], Rows) or part_or_none(args[0]) is None:
        return UNKNOWN
    rows = args[0]
    return func(torch.empty(tuple(rows.shape), dtype=rows.dtype, device=rows.device), *args[1:], **kwargs)


def _install() -> None:
    for names, rule in (
        (_OF_ONE, _pointwise),
        (_OF_SEVERAL, _pointwise),
        (_IN_PLACE, _in_place),
        (_OVER_OTHER_DIMS, _over_dims),
        (_LOOKED_AT, _looked_at),
        ("to type type_as cuda cpu", _to),
        ("matmul mm __matmul__ linear", _times_matrix),
        ("gather", _picked),
        ("one_hot", _one_hot),
        ("zeros_like ones_like empty_like full_like rand_like randn_like randint_like", _like),
        ("requires_grad.__get__", _requires_grad),
    ):
        RULES.update(dict.fromkeys(names.split(), rule))


_install()
