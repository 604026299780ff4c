"""What torch's functions do with the rows of a parameter. A function without a rule here gets the whole of it.

Only what works entry by entry is done with the rows, and norms: the two that optimizers, clipping and averages of
weights are made of. Random numbers and sums are always those of the whole, in the order of one process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from vivace.scale.errors import ScaleError
from vivace.scale.rows import UNKNOWN
from vivace.scale.sharded import RULES, Sharded, in_memory, settle, whole_of

__all__: list[str] = []

_LOOKED_AT = """
    size dim ndimension numel nelement element_size is_floating_point is_complex __len__ stride get_device
    is_contiguous is_same_size storage_offset is_inference is_signed is_set_to detach_ retain_grad has_names _is_view
    shape.__get__ dtype.__get__ device.__get__ ndim.__get__ layout.__get__ is_cuda.__get__ is_cpu.__get__
    is_sparse.__get__ is_mps.__get__ is_quantized.__get__ is_meta.__get__ itemsize.__get__ nbytes.__get__
    is_leaf.__get__ names.__get__ is_xpu.__get__ __hash__ is_nested.__get__ is_mkldnn.__get__ requires_grad.__get__
    grad_fn.__get__ retains_grad.__get__ _version.__get__ _backward_hooks.__get__ _post_accumulate_grad_hooks.__get__
    _base.__get__ is_sparse_csr.__get__ grad_dtype.__get__ output_nr.__get__ is_hpu.__get__ is_mtia.__get__
    is_ipu.__get__ is_vulkan.__get__ is_maia.__get__ is_xla.__get__ name.__get__ volatile.__get__ _grad_fn.__get__
    is_neg is_conj is_pinned is_shared
"""
_ENTRY_BY_ENTRY = """
    abs absolute add addcdiv addcmul bitwise_not bool ceil clamp clamp_max clamp_min clip clone div divide double eq
    exp float floor fmax fmin ge gt half bfloat16 isfinite isinf isnan le lerp log log1p logical_and logical_not
    logical_or lt maximum minimum mul multiply nan_to_num ne neg negative pow reciprocal round rsqrt rsub sigmoid sign
    sqrt square sub subtract tanh true_divide type where zeros_like ones_like empty_like full_like contiguous __abs__
    __neg__ __pos__ __add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__ __rtruediv__ __pow__ __rpow__
    __eq__ __ne__ __lt__ __le__ __gt__ __ge__
"""
_IN_PLACE = """
    add_ sub_ mul_ div_ addcdiv_ addcmul_ lerp_ zero_ fill_ clamp_ clamp_min_ clamp_max_ neg_ abs_ sign_ exp_ sqrt_
    rsqrt_ pow_ square_ reciprocal_ nan_to_num_ copy_ masked_fill_ __iadd__ __isub__ __imul__ __itruediv__
"""
_LISTS_IN_PLACE = """
    _foreach_add_ _foreach_sub_ _foreach_mul_ _foreach_div_ _foreach_addcdiv_ _foreach_addcmul_ _foreach_lerp_
    _foreach_zero_ _foreach_neg_ _foreach_abs_ _foreach_sqrt_ _foreach_pow_ _foreach_clamp_min_ _foreach_clamp_max_
    _foreach_maximum_ _foreach_minimum_ _foreach_reciprocal_ _foreach_copy_ _foreach_sign_
"""


def _looked_at(func: Any, args: Any, kwargs: Any) -> Any:
    """Answered by the wrapper, which has the whole's shape."""
    with torch._C.DisableTorchFunctionSubclass():
        return func(*args, **kwargs)


# -- entry by entry --------------------------------------------------------------------------------------------------


def _rows(value: Any, target: Sharded) -> Any:
    """An operand as the rows of ``target`` need it; UNKNOWN where it does not fit."""
    if not isinstance(value, torch.Tensor):
        return UNKNOWN if isinstance(value, (list, tuple)) else value
    if isinstance(value, Sharded):
        return value._local.detach() if value.shape == target.shape else UNKNOWN
    if type(value) not in (torch.Tensor, torch.nn.Parameter):
        return UNKNOWN
    if value.shape == target.shape:
        return target.own_rows(value)
    return value if value.dim() < target.dim() or value.dim() == 0 else UNKNOWN


def _needs_gradient(values: Sequence[Any]) -> bool:
    tensors = (value for value in values if isinstance(value, torch.Tensor))
    return torch.is_grad_enabled() and any(value.requires_grad for value in tensors)


def _operands(args: Any, kwargs: Any, target: Sharded) -> tuple[list[Any], dict[str, Any]] | None:
    settle()
    rows = [_rows(value, target) for value in args]
    named = {name: _rows(value, target) for name, value in kwargs.items()}
    if any(each is UNKNOWN for each in (*rows, *named.values())):
        return None
    return rows, named


def _pointwise(func: Any, args: Any, kwargs: Any) -> Any:
    if _needs_gradient((*args, *kwargs.values())) or kwargs.get("out") is not None:
        return UNKNOWN
    target = next((value for value in args if isinstance(value, Sharded)), None)
    found = None if target is None else _operands(args, kwargs, target)
    if found is None or target is None:
        return UNKNOWN
    rows, named = found
    result = func(*rows, **named)
    if not isinstance(result, torch.Tensor) or result.shape != target._local.shape:
        return UNKNOWN
    return target.like(result)


def _converted(func: Any, args: Any, kwargs: Any) -> Any:
    """``to``, ``cpu``, ``float``: the parameter itself where nothing changes."""
    sharded = args[0]
    if not isinstance(sharded, Sharded):
        return UNKNOWN
    with torch._C.DisableTorchFunctionSubclass(), torch.no_grad():
        shown = func(torch.empty(0, dtype=sharded.dtype, device=sharded.device), *_shown(args[1:]), **kwargs)
    if kwargs.get("copy") or not isinstance(shown, torch.Tensor):
        return UNKNOWN
    return sharded if shown.dtype == sharded.dtype and shown.device == sharded.device else UNKNOWN


def _shown(args: Any) -> list[Any]:
    return [torch.empty(0, dtype=a.dtype, device=a.device) if isinstance(a, Sharded) else a for a in args]


def _in_place(func: Any, args: Any, kwargs: Any) -> Any:
    target = args[0]
    if not isinstance(target, Sharded):
        return UNKNOWN
    if _needs_gradient((*args[1:], *kwargs.values())):
        raise ScaleError(f"{func.__name__} writes a value that has a gradient into a tensor that lies on several ranks")
    found = _operands(args[1:], kwargs, target)
    if found is None:
        return UNKNOWN
    rows, named = found
    with torch.no_grad():
        func(target._local.detach(), *rows, **named)
    return target


# -- lists of parameters ---------------------------------------------------------------------------------------------


def _lists_in_place(func: Any, args: Any, kwargs: Any) -> Any:
    settle()
    targets = args[0]
    columns = [list(word) if isinstance(word, (list, tuple)) else word for word in args[1:]]
    for column in columns:
        for index, target in enumerate(targets if isinstance(column, list) else ()):
            if isinstance(target, Sharded):
                column[index] = _rows(column[index], target)
            elif isinstance(column[index], Sharded):
                column[index] = whole_of(column[index])
            if column[index] is UNKNOWN:
                raise ScaleError(f"{func.__name__} was given tensors that do not fit the parameters")
    own = [each._local.detach() if isinstance(each, Sharded) else each for each in targets]
    with torch.no_grad():
        func(own, *columns, **kwargs)
    return None


def _norm_over_ranks(local: torch.Tensor, order: float, group: Any, dtype: Any = None) -> torch.Tensor:
    """A norm of all entries, of the rows that each rank has."""
    if order == float("inf"):
        own = local.abs().max() if local.numel() else local.new_zeros(())
        return group.largest((own if dtype is None else own.to(dtype)).reshape(1)).reshape(())
    own = torch.linalg.vector_norm(local, order, dtype=dtype)
    return group.sum((own**order).reshape(1)).reshape(()) ** (1.0 / order)


def _order(words: Sequence[Any], kwargs: Any, names: Sequence[str]) -> float | None:
    """The order of a norm over everything; None for one that is not, or that is not a norm."""
    given = {name: value for name, value in kwargs.items() if value is not None}
    order = words[0] if words else next((given.pop(name) for name in names if name in given), 2.0)
    given.pop("dtype", None)
    if given or len(words) > 1 or isinstance(order, torch.Tensor):
        return None
    order = {"fro": 2.0, "inf": float("inf")}.get(order, order) if isinstance(order, str) else order
    return float(order) if isinstance(order, (int, float)) and order > 0 else None


def _norm(_func: Any, args: Any, kwargs: Any) -> Any:
    sharded = args[0]
    order = _order(args[1:], kwargs, ("p", "ord"))
    if not isinstance(sharded, Sharded) or order is None or _needs_gradient(args):
        return UNKNOWN
    settle()
    return _norm_over_ranks(sharded._local.detach(), order, sharded._group, kwargs.get("dtype"))


def _norms(_func: Any, args: Any, kwargs: Any) -> Any:
    """Of a list: one exchange for all of them."""
    order = _order(args[1:], kwargs, ("ord",))
    if order is None or _needs_gradient(args[0]):
        return UNKNOWN
    settle()
    found = [_own_norm(each, order, kwargs.get("dtype")) for each in args[0]]
    which = [index for index, each in enumerate(args[0]) if isinstance(each, Sharded)]
    group = args[0][which[0]]._group
    powers = torch.stack([found[index] if order == float("inf") else found[index] ** order for index in which])
    powers = group.largest(powers) if order == float("inf") else group.sum(powers) ** (1.0 / order)
    for index, norm in zip(which, powers.unbind()):
        found[index] = norm
    return found


def _own_norm(tensor: Any, order: float, dtype: Any) -> torch.Tensor:
    local = tensor._local.detach() if isinstance(tensor, Sharded) else tensor
    if order == float("inf") and not local.numel():
        return local.new_zeros(())
    return torch.linalg.vector_norm(local, order, dtype=dtype)


def _unscaled(func: Any, args: Any, kwargs: Any) -> Any:
    """A GradScaler's: what is not finite on one rank is not finite."""
    gradients, found_inf, scale = args
    settle()
    group = next(each for each in gradients if isinstance(each, Sharded))._group
    func([each._local.detach() if isinstance(each, Sharded) else each for each in gradients], found_inf, scale)
    with torch.no_grad():
        group.largest(found_inf)
    return None


# -- what makes it a parameter ---------------------------------------------------------------------------------------


def _data(_func: Any, args: Any, _kwargs: Any) -> Any:
    settle()
    return args[0].same_rows()


def _set_data(_func: Any, args: Any, _kwargs: Any) -> Any:
    sharded, value = args
    if not isinstance(sharded, Sharded):
        return UNKNOWN
    if value.shape != sharded.shape or value.dtype != sharded.dtype or value.device != sharded.device:
        raise ScaleError("a parameter gets another shape, type or device after its model was sharded")
    with torch.no_grad():
        sharded._local.detach().copy_(_rows(value, sharded))
    return None


def _requires_grad(func: Any, args: Any, kwargs: Any) -> Any:
    with torch._C.DisableTorchFunctionSubclass():
        result = func(*args, **kwargs)
    parameter = args[0]
    if parameter._leaf is not None:
        with torch._C.DisableTorchFunctionSubclass():
            needs = parameter.requires_grad
        parameter._leaf.requires_grad_(needs)
        if parameter._on_requires_grad is not None:
            parameter._on_requires_grad(needs)
    return parameter if result is not None else None


def _plain(sharded: Sharded) -> torch.Tensor:
    """What it is to anybody who keeps or prints it."""
    with torch.no_grad():
        whole = whole_of(sharded)
    return torch.nn.Parameter(whole, sharded.requires_grad) if sharded._leaf is not None else whole


def _reduced(_func: Any, args: Any, _kwargs: Any) -> Any:
    return _plain(args[0]).__reduce_ex__(args[1])


def _copied(_func: Any, args: Any, _kwargs: Any) -> Any:
    sharded, memo = args
    if id(sharded) not in memo:
        copy = _plain(sharded) if sharded._leaf is not None else sharded.like(sharded._local.detach().clone())
        if sharded._leaf is not None and sharded.grad is not None:
            copy.grad = whole_of(sharded.grad)
        memo[id(sharded)] = copy
    return memo[id(sharded)]


def _printed(_func: Any, args: Any, _kwargs: Any) -> Any:
    return repr(_plain(args[0]))


def _formatted(func: Any, args: Any, kwargs: Any) -> Any:
    return func(_plain(args[0]), *args[1:], **kwargs)


def _address(func: Any, args: Any, kwargs: Any) -> Any:
    return func(in_memory(args[0]), *args[1:], **kwargs)


def _sized_like(func: Any, args: Any, kwargs: Any) -> Any:
    if isinstance(args[0], Sharded):
        return UNKNOWN
    return func(args[0], torch.empty(args[1].shape, dtype=args[1].dtype, device="meta"), **kwargs)


def _hooked(_func: Any, args: Any, _kwargs: Any) -> Any:
    raise ScaleError("a hook is put on a parameter after its model was sharded; put it there before the first forward")


def _backward(func: Any, args: Any, kwargs: Any) -> Any:
    return func(whole_of(args[0]), *args[1:], **kwargs)


for _names, _rule in (
    (_LOOKED_AT, _looked_at),
    (_ENTRY_BY_ENTRY, _pointwise),
    (_IN_PLACE, _in_place),
    (_LISTS_IN_PLACE, _lists_in_place),
):
    RULES.update(dict.fromkeys(_names.split(), _rule))
RULES.update(dict.fromkeys(("to", "cpu", "cuda", "float", "double", "half", "bfloat16", "type"), _converted))
RULES.update(dict.fromkeys(("norm", "vector_norm", "linalg_vector_norm"), _norm))
RULES.update(dict.fromkeys(("view_as", "reshape_as", "expand_as"), _sized_like))
RULES.update(dict.fromkeys(("register_hook", "register_post_accumulate_grad_hook"), _hooked))
RULES.update({"__repr__": _printed, "__str__": _printed, "__format__": _formatted})
RULES.update(dict.fromkeys(("requires_grad_", "requires_grad.__set__"), _requires_grad))
RULES.update({
    "_foreach_norm": _norms, "_amp_foreach_non_finite_check_and_unscale_": _unscaled, "data.__get__": _data,
    "detach": _data, "data.__set__": _set_data, "__reduce_ex__": _reduced, "__deepcopy__": _copied,
    **dict.fromkeys(("data_ptr", "untyped_storage", "storage", "_typed_storage"), _address),
})  # fmt: skip
