"""DistributedDataParallel, not DataParallel: one process per GPU instead of threads that share one interpreter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vivace.measure.inside.patches import in_place_of
from vivace.practices.engine.batches import tensors_in
from vivace.practices.engine.change import Change
from vivace.practices.engine.practice import Found, Practice
from vivace.practices.engine.pricing import idle_ms, launch_idle_ms, step_ms
from vivace.practices.engine.step_model import Shares, share_saved
from vivace.practices.engine.torch_later import torch

if TYPE_CHECKING:
    from vivace.records.measurement import Measurement

_SMALLEST_SHARE = 0.01
# DataParallel looks at every parameter and buffer in each forward, 1.1 µs each where it was timed; a batch norm has as
# many buffers as parameters. And it scatters: steps of 29 parameters were 230 to 380 µs longer with it
# (benchmarks/results/planted_defects.csv, R4, three runs); the largest is the bound.
_US_PER_PARAMETER = 2.2
_US_PER_FORWARD = 320.0


class LookThrough(Change):
    """DataParallel around one GPU calls its module directly. The wrapper stays, and so do the names in state dicts."""

    def __init__(self, argument: str | None = None) -> None:
        super().__init__(argument)
        self.patched = False

    def flags(self) -> None:
        if not self.patched:
            self.patched = True
            original = torch.nn.DataParallel.forward

            def forward(wrapper: Any, *inputs: Any, **kwargs: Any) -> Any:
                if not self._can_look_through(wrapper, inputs, kwargs):
                    return original(wrapper, *inputs, **kwargs)
                self.applied("DataParallel around one GPU calls its module directly")
                return wrapper.module(*inputs, **kwargs)

            torch.nn.DataParallel.forward = in_place_of(original, forward)  # type: ignore[method-assign, assignment]

    def _can_look_through(self, wrapper: Any, inputs: Any, kwargs: Any) -> bool:
        """Over one GPU, and nothing to be moved there first: scattering moves what lies on the host."""
        count = len(wrapper.device_ids)
        if count != 1:
            self.refused = self.refused or (
                f"DataParallel over {count} GPUs: one process per GPU needs torchrun and a few lines"
                if count
                else "DataParallel without a GPU already calls its module directly"
            )
            return False
        device = torch.device("cuda", wrapper.device_ids[0])
        return all(tensor.device == device for tensor in tensors_in((inputs, kwargs)))


def find(m: Measurement) -> Found | None:
    wrapper = next((one for one in m.structure.wrappers if one.name == "DataParallel"), None)
    if wrapper is None:
        return None
    devices = int(wrapper.options.get("devices", 0))
    where = (wrapper.where.file, wrapper.where.line) if wrapper.where else None
    if devices == 0:  # no GPU: it calls its module directly
        return None
    return _over_several(m, devices, where) if devices > 1 else _over_one(m, where)


def _over_several(m: Measurement, devices: int, where: tuple[str, int] | None) -> Found | None:
    """Copies of the model to every GPU at each step, one interpreter for all of them, outputs gathered on the first."""
    exposed = idle_ms(m) + ((m.profile.communication_ms_per_step or 0.0) if m.profile else 0.0)
    if exposed < _SMALLEST_SHARE * step_ms(m):
        return None
    return Found(
        exposed_ms=exposed,
        idle_ms=idle_ms(m),
        evidence={"devices": devices, "idle_and_communication_ms": round(exposed, 3)},
        says=(
            f"DataParallel drives {devices} GPUs from one process: the first one idles or copies {exposed:.1f} ms of a "
            "step"
        ),
        where=where,
        why_not="one process per GPU needs torchrun and a few lines",
    )


def _over_one(m: Measurement, where: tuple[str, int] | None) -> Found | None:
    tensors = max((optimizer.tensors for optimizer in m.structure.optimizers), default=0)
    forwards = m.micro_batches or 1.0
    exposed = min(forwards * (_US_PER_FORWARD + tensors * _US_PER_PARAMETER) / 1e3, launch_idle_ms(m))
    if exposed <= _SMALLEST_SHARE * step_ms(m):
        return None
    return Found(
        exposed_ms=exposed,
        idle_ms=exposed,
        likely=share_saved(exposed, Shares(1.0, 0.3, 1.5)),  # R4 in planted_defects.csv: 1.04 to 1.07
        evidence={"devices": 1, "tensors": tensors},
        says=(
            f"DataParallel around one device only scatters what is there and looks at {tensors} tensors again at every "
            f"step: {exposed:.2f} ms"
        ),
        where=where,
        by_hand="model = model.to(device)   # without DataParallel",
    )


PRACTICE = Practice(
    name="ddp_not_dp",
    title="DistributedDataParallel instead of DataParallel",
    family="structure",
    same_arithmetic=False,
    risk="exact",
    source="R4: nn.parallel.DistributedDataParallel. DLO-JZ, data parallelism.",
    why=(
        "DataParallel copies the model to every GPU at every step, drives them from one Python process, and gathers "
        "outputs and gradients on the first. DistributedDataParallel runs one process per GPU and averages gradients "
        "while the backward still runs. Around a single GPU, DataParallel is only a detour: vivace looks through it, "
        "and the names in checkpoints stay."
    ),
    by_hand=(
        'torch.distributed.init_process_group("nccl")\n'
        'local_rank = int(os.environ["LOCAL_RANK"]); torch.cuda.set_device(local_rank)\n'
        "model = nn.parallel.DistributedDataParallel(model.cuda(), device_ids=[local_rank])\n"
        "loader = DataLoader(dataset, batch_size // world_size, sampler=DistributedSampler(dataset))\n"
        "sampler.set_epoch(epoch)   # at the start of each epoch\n"
        "# torchrun --nproc-per-node=4 train.py"
    ),
    other_draws=True,
    find=find,
    change=LookThrough,
    order=5,
)
