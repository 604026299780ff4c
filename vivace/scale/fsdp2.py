"""torch's FSDP2, as far as vivace needs it. Everything that reaches into it is in this file.

FSDP2 replaces the parameters of a module by ones of its own. The script holds the old ones, in optimizers and lists, so
here each old one becomes the sharded one (``sharded``), and FSDP2 puts that one back whenever it is done.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist

from vivace.measure.inside.patches import in_place_of
from vivace.scale.group import Group
from vivace.scale.opaque import deep_leaves
from vivace.scale.sharded import become_sharded

__all__ = ["Engine", "Unit", "missing_feature"]


def missing_feature() -> str | None:
    """Why this torch cannot do it."""
    if not dist.is_available():
        return "this torch was built without torch.distributed"
    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError:
        return "this torch has no FSDP2 (torch.distributed.fsdp.fully_shard): torch 2.6 or newer has it"
    if "ignored_params" not in inspect.signature(fully_shard).parameters or not hasattr(torch._C, "_swap_tensor_impl"):
        return "FSDP2 of this torch cannot leave parameters out (fully_shard has no ignored_params)"
    return None


class Engine:
    """Shards modules over the ranks of a group."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self._init: Any = dist.init_process_group  # before the script's is refused
        self._mesh: dict[str, Any] = {}

    def shard(
        self, root: torch.nn.Module, blocks: Iterable[torch.nn.Module], left_out: set[Any], on_copy: Any
    ) -> list[Unit]:
        """Its units, the root's last. ``on_copy`` makes a plain copy of a module."""
        from torch.distributed.fsdp import fully_shard

        device = next(root.parameters()).device.type
        mesh = self._mesh_of(device)
        modules = [*blocks, root]
        places = {(id(m), name): p for m in root.modules() for name, p in m._parameters.items() if p is not None}
        states = []
        for module in modules:
            made: Any = fully_shard(module, mesh=mesh, reshard_after_forward=True, ignored_params=left_out)
            _looks_as_before(made, on_copy)
            states.append(made._get_fsdp_state())
        states[-1]._lazy_init()
        return [Unit(state, places, self.group) for state in states]

    def _mesh_of(self, device: str) -> Any:
        if device not in self._mesh:
            from torch.distributed.device_mesh import init_device_mesh

            if not dist.is_initialized():
                both = device == "cuda" and self.group._own_gpu
                self._init(
                    "cpu:gloo,cuda:nccl" if both else "gloo",
                    store=dist.PrefixStore("vivace/fsdp", self.group._store),
                    rank=self.group.rank, world_size=self.group.world, timeout=self.group._timeout,
                )  # fmt: skip
                _hide()
            self._mesh[device] = init_device_mesh(device, (self.group.world,))
        return self._mesh[device]


def _hide() -> None:
    """The script and its libraries believe that they are alone; torch itself knows better."""
    from torch.distributed import distributed_c10d

    original = dist.is_initialized

    def is_initialized() -> bool:
        return original() and sys._getframe(1).f_globals.get("__name__", "").startswith("torch.")

    dist.is_initialized = in_place_of(original, is_initialized)
    distributed_c10d.is_initialized = dist.is_initialized


def _looks_as_before(module: Any, on_copy: Callable[[Any, dict[int, Any]], Any]) -> None:
    """FSDP2 gave it a class of its own: the name stays, and it can be copied and saved."""
    made: Any = type(module)
    was = made.__mro__[2]
    made.__name__, made.__qualname__, made.__module__ = was.__name__, was.__qualname__, was.__module__
    made.__deepcopy__ = lambda self, memo: on_copy(self, memo)
    # Protocol 1: the later ones insist on the class of the object that is saved.
    made.__reduce_ex__ = lambda self, _protocol: on_copy(self, {}).__reduce_ex__(1)


class Unit:
    """The parameters that are gathered together."""

    def __init__(self, state: Any, places: dict[Any, Any], group: Group) -> None:
        self.state = state
        self.module: torch.nn.Module = state._modules[0]
        groups = getattr(state, "_fsdp_param_groups", None)
        self._groups: list[Any] = (
            list(groups) if groups is not None else [g for g in (state._fsdp_param_group,) if g is not None]
        )
        self.helds: list[Any] = [held for each in self._groups for held in each.fsdp_params]
        self.parameters: list[Any] = []
        self.used: list[bool] = [False] * len(self.helds)  # by this rank's rows, in the backward pass that runs
        self._filled: set[int] = set()  # those that had no gradient at all before it
        for held in self.helds:
            info = held._module_info
            self._keep_object(held, places[id(info.module), info.param_name], group)
        for each in self._groups:
            each.post_backward = self._all_take_part(each.post_backward, group)
            each.unshard = _counted(each, each.unshard, group)
            each.wait_for_unshard = _waited(each.wait_for_unshard, group)
        state._register_pre_backward_hook = self._hook_all_outputs  # and keeps us alive as long as the module

    def _keep_object(self, held: Any, parameter: Any, group: Group) -> None:
        def needs_gradient(yes: bool) -> None:
            held.sharded_param.requires_grad_(yes)
            if hasattr(held, "_unsharded_param"):
                held._unsharded_param.requires_grad_(yes)

        become_sharded(parameter, held.sharded_param._local_tensor.detach(), group, needs_gradient)
        original = held._setattr_on_modules
        held._setattr_on_modules = lambda given: original(parameter if given is held.sharded_param else given)
        held.reset_sharded_param = lambda: None
        held._setattr_on_modules(held.sharded_param)
        self.parameters.append(parameter)

    # -- forward -----------------------------------------------------------------------------------------------------

    def replaced(self) -> str | None:
        """A parameter that the script put another one in the place of."""
        for held, parameter in zip(self.helds, self.parameters):
            info = held._module_info
            if info.module._parameters.get(info.param_name) is not parameter:
                return f"{type(info.module).__name__}.{info.param_name}"
        return None

    def _hook_all_outputs(self, output: Any) -> Any:
        """Where a backward pass may come in: outputs, also inside objects, and what the modules keep in attributes."""
        if torch.is_grad_enabled():
            kept = (value for module in self._modules() for value in module.__dict__.values())
            for leaf in (*deep_leaves(output), *kept):
                if isinstance(leaf, torch.Tensor) and leaf.requires_grad and not leaf.is_leaf:
                    leaf.register_hook(self.state._pre_backward)
        return output

    def _modules(self) -> Iterator[torch.nn.Module]:
        for each in self._groups:
            yield from {id(held._module_info.module): held._module_info.module for held in each.fsdp_params}.values()
            yield from each.modules

    def reset(self) -> None:
        """After a forward that failed."""
        from torch.distributed.fsdp._fully_shard._fsdp_common import TrainingState

        self.state._training_state = TrainingState.IDLE
        context = self.state._state_ctx
        context.iter_forward_root = None
        for each in self._groups:
            each._training_state = TrainingState.IDLE
            each._post_forward_indices.clear()
            each.comm_ctx.post_forward_order.clear()
            if each.is_unsharded:
                each._to_sharded()

    # -- backward ----------------------------------------------------------------------------------------------------

    def _all_take_part(self, original: Any, group: Group) -> Any:
        """A parameter that no row of this rank reached takes part with zeros: the ranks exchange the same ones."""

        def post_backward(*unused: Any) -> None:
            for index, held in enumerate(self.helds):
                own = getattr(held, "_unsharded_param", None)
                if own is None or not own.requires_grad:
                    continue
                if own.grad is not None:
                    self.used[index] = True
                else:
                    own.grad = torch.zeros_like(own)
                    if held.sharded_param.grad is None:
                        self._filled.add(index)
                group.bytes_sent += own.numel() * own.element_size()
            with group.progress:
                original(*unused)

        return post_backward

    @property
    def has_more(self) -> bool:
        """Gradients that came after their unit's exchange (second derivatives, a second way to a parameter)."""
        return any(getattr(held, "_unsharded_param", None) is not None and held._unsharded_param.grad is not None
                   for held in self.helds)  # fmt: skip

    def exchange_more(self) -> None:
        for each in self._groups:
            each.post_backward()
            each.finalize_backward()
        self.reset()

    def end_backward(self, used: list[bool]) -> None:
        """``used``: by any rank. Gradients move to where the script's optimizer finds them."""
        for index, (held, parameter) in enumerate(zip(self.helds, self.parameters)):
            new = held.sharded_param.grad
            if new is None:
                continue
            held.sharded_param.grad = None
            leaf = parameter._leaf
            if not used[index] and index in self._filled:
                continue
            if leaf.grad is None:
                leaf.grad = new._local_tensor
            elif used[index]:
                leaf.grad.add_(new._local_tensor)
        self.used = [False] * len(self.helds)
        self._filled.clear()

    # -- second derivatives ------------------------------------------------------------------------------------------

    def stay_whole(self, yes: bool) -> None:
        """Between the first backward pass of a graph and the last the gathered values must stay in memory."""
        for each in self._groups:
            each.reshard_after_backward = not yes
            if yes and any(hasattr(held, "_unsharded_param") for held in each.fsdp_params):
                each.unshard()
                each.wait_for_unshard()

    def show_sharded(self) -> None:
        """What the script finds in the modules, while the gathered values stay in memory."""
        for held in self.helds:
            held._setattr_on_modules(held.sharded_param)


def _waited(original: Any, group: Group) -> Any:
    def wait(*args: Any, **kwargs: Any) -> Any:
        with group.progress:
            return original(*args, **kwargs)

    return wait


def _counted(params: Any, original: Any, group: Group) -> Any:
    """Gathers, in the bytes of this rank's own rows."""
    size = sum(
        held._sharded_param_data.numel() * held._sharded_param_data.element_size() for held in params.fsdp_params
    )

    def unshard(*args: Any, **kwargs: Any) -> Any:
        if params._all_gather_result is None and not params.is_unsharded:
            group.bytes_sent += size
        with group.progress:
            return original(*args, **kwargs)

    return unshard
