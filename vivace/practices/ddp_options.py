"""Options of DistributedDataParallel: no search for unused parameters, gradients that live in the buckets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vivace.practices.engine.change import Change, NotApplicable
from vivace.practices.engine.practice import Found, Practice
from vivace.practices.engine.pricing import on_gpu, phase_ms, step_ms
from vivace.practices.engine.step_model import Shares, share_saved

if TYPE_CHECKING:
    from vivace.records.measurement import Measurement
    from vivace.records.structure import Wrapper

_SMALLEST_SHARE = 0.01
# Most of the exchange stays. R14 in planted_defects.csv: 1.86 at most, 1.10 measured; on one rank 1.05 and 0.97 (ddp in
# public_scripts_trials.csv).
_SAVED = Shares(0.2, 0.0, 0.7)  # usual, least, most
_CHOICES = ("views", "all_used", "static_graph")


class DdpOptions(Change):
    """``views`` is safe everywhere. ``all_used`` and ``static_graph`` promise something about the model to DDP, which
    raises an error when a later step breaks the promise."""

    def __init__(self, argument: str | None = None) -> None:
        super().__init__(argument)
        self.choice = argument or "views"
        if self.choice not in _CHOICES:
            raise ValueError(f"{argument!r} is not one of {', '.join(_CHOICES)}")

    def wrapper(self, arguments: dict[str, Any]) -> None:
        wanted = {"gradient_as_bucket_view": True}
        if self.choice == "all_used":
            wanted["find_unused_parameters"] = False
        elif self.choice == "static_graph":
            wanted["static_graph"] = True
        changed = {name: value for name, value in wanted.items() if arguments.get(name) != value}
        if not changed:
            raise NotApplicable("the script already sets these options")
        arguments.update(changed)
        self.applied(", ".join(f"{name}={value}" for name, value in changed.items()))


def find(m: Measurement) -> Found | None:
    wrapper = next((one for one in m.structure.wrappers if one.name == "DistributedDataParallel"), None)
    if wrapper is None:
        return None
    searches = wrapper.options.get("find_unused_parameters") is True
    unused = wrapper.options.get("unused_parameters")
    copies = 0.0 if wrapper.options.get("gradient_as_bucket_view") else _bucket_copies_ms(m)
    searching = _exposed_communication_ms(m) if searches else 0.0
    exposed = copies + searching
    if exposed <= _SMALLEST_SHARE * step_ms(m):
        return None
    return Found(
        exposed_ms=exposed,
        likely=share_saved(exposed, _SAVED),
        evidence={
            "find_unused_parameters": searches,
            "unused_parameters": unused,
            "gradient_as_bucket_view": bool(wrapper.options.get("gradient_as_bucket_view")),
            "exposed_communication_ms": round(_exposed_communication_ms(m), 3),
            "bucket_copies_ms": round(copies, 3),
        },
        says=_says(searches, unused, searching, copies),
        where=(wrapper.where.file, wrapper.where.line) if wrapper.where else None,
        setting=f"ddp_options={_choice(searches, unused)}",
        by_hand=_by_hand(wrapper, unused),
    )


def _choice(searches: bool, unused: int | None) -> str:
    if not searches:
        return "views"
    return "all_used" if unused == 0 else "static_graph"


def _says(searches: bool, unused: int | None, searching: float, copies: float) -> str:
    if not searches:
        return f"DDP copies every gradient into its buckets and back: {copies:.2f} ms per step"
    if unused == 0:
        return (
            "find_unused_parameters=True, but every parameter got a gradient: DDP walks the graph at every step and "
            f"keeps its buckets in the order of the constructor; {searching:.1f} ms of communication are exposed"
        )
    return (
        f"find_unused_parameters=True with {unused if unused is not None else 'some'} parameters unused: buckets keep "
        f"the order of the constructor, and {searching:.1f} ms of communication are exposed"
    )


def _by_hand(wrapper: Wrapper, unused: int | None) -> str:
    line = "DistributedDataParallel(model, device_ids=[local_rank], gradient_as_bucket_view=True"
    if wrapper.options.get("find_unused_parameters") and unused:
        return (
            f"{line}, static_graph=True)   # if the same ones are unused at every step\n"
            "# or define the layers in the order in which the forward calls them (R14)"
        )
    return f"{line})   # find_unused_parameters=False is the default"


def _exposed_communication_ms(m: Measurement) -> float:
    """Communication that no computation hides: as profiled on a GPU, else as the wait after the last gradient."""
    if on_gpu(m) and m.profile is not None and m.profile.communication_exposed_ms_per_step is not None:
        return m.profile.communication_exposed_ms_per_step
    return max(0.0, phase_ms(m, "communication") - (m.waiting_for_ranks_ms or 0.0))  # no option makes a rank faster


def _bucket_copies_ms(m: Measurement) -> float:
    """Each fp32 gradient is read and written once on the way in and once on the way out, at the memory's full speed."""
    bandwidth = m.machine.gpus[0].memory_bandwidth_gbytes_per_s if on_gpu(m) and m.machine.gpus else None
    return 4 * 4 * (m.trainable_parameters or 0) / (bandwidth * 1e6) if bandwidth else 0.0


def lines(choice: str) -> str:
    more = {"all_used": ", find_unused_parameters=False", "static_graph": ", static_graph=True"}.get(choice, "")
    return f"DistributedDataParallel(model, device_ids=[local_rank], gradient_as_bucket_view=True{more})"


PRACTICE = Practice(
    name="ddp_options",
    title="options of DistributedDataParallel",
    family="structure",
    risk="rounding",
    source="R14: layer order and find_unused_parameters. PyTorch notes on DistributedDataParallel.",
    why=(
        "find_unused_parameters=True walks the graph after every forward, adds a collective, and keeps the buckets in "
        "the order of the constructor: where layers run in another order, a whole bucket waits for its last gradient. "
        "With False the buckets follow the order in which gradients come. gradient_as_bucket_view lets gradients live "
        "in the buckets: no copies, and less memory by their size. all_used sets find_unused_parameters=False: right "
        "only if every parameter gets a gradient at every step, or DDP stops with an error. static_graph is for the "
        "same graph at every step, with or without unused parameters. Both make other buckets, and a sum over more "
        "than two ranks may then round differently; views alone change no bucket."
    ),
    by_hand="DistributedDataParallel(model, device_ids=[local_rank], gradient_as_bucket_view=True)",
    find=find,
    change=DdpOptions,
    argument="views | all_used | static_graph",
    lines=lines,
    order=20,
)
