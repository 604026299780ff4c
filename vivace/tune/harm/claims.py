"""How much may a set of practices change? What it says of itself, and the number format that it rounds to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vivace.practices.engine.registry import get_practice, is_probe, split_word
from vivace.records.measurement import Measurement

__all__ = ["FORMATS", "Claims", "Tolerance", "claims_of"]


@dataclass(frozen=True)
class Tolerance:
    """Relative differences that rounding to a number format can cause on healthy jobs, with room to spare.

    Measured (benchmarks/results/harm_power.csv and the runs behind it, CPU; four small jobs): practices that only round
    fp32 otherwise change the first gradient by at most 6e-6 and the first loss by 1e-6; planted harms change the
    gradient by 1.3e-3 or more. bf16 autocast changes gradients by 0.003 to 0.01, and by 0.06 to 0.12 with batch norm,
    their norm by at most 1 %, and the first loss by at most 2e-4. TF32 and fp16 have 8 times the precision of bf16.
    """

    gradient: float
    """Length of the difference over the length of the gradient."""
    norm: float
    loss: float
    """Of the first step, and on average over those that two runs go together."""
    update_norm: float
    update_along: float
    """The least share of the baseline's update that the tuned update holds, along it."""


FORMATS = {
    "fp32": Tolerance(gradient=1e-3, norm=1e-3, loss=2e-4, update_norm=0.02, update_along=0.8),
    "tf32": Tolerance(gradient=0.05, norm=0.01, loss=2e-3, update_norm=0.03, update_along=0.7),
    "fp16": Tolerance(gradient=0.5, norm=0.06, loss=6e-3, update_norm=0.06, update_along=0.5),
    "bf16": Tolerance(gradient=0.5, norm=0.06, loss=6e-3, update_norm=0.06, update_along=0.5),
    "fp8": Tolerance(gradient=0.9, norm=0.2, loss=0.03, update_norm=0.2, update_along=0.3),
}
_LEAN_OF_ROUNDED_WEIGHTS = 0.03
_COARSENESS = tuple(FORMATS)  # from the finest to the coarsest


@dataclass(frozen=True)
class Claims:
    """Of a set of practices beside a job: what its tuned runs may differ by."""

    same_losses: bool = False
    """To the bit, where the unchanged job repeats itself."""
    number_format: str = "fp32"
    other_draws: tuple[str, ...] = ()
    """Practices that may see other batches or draw other random numbers."""
    rounds_weights: bool = False
    """Weights are kept in 16 bits: small updates are lost, which is the practice's own risk."""

    @property
    def tolerance(self) -> Tolerance:
        return FORMATS[self.number_format]

    @property
    def leaves_steps_out(self) -> bool:
        """Loss scaling skips a step whose gradients overflow: from there on the runs are a step apart."""
        return self.number_format == "fp16"

    @property
    def lean(self) -> float:
        """Of losses, to one side, while the runs go together. Weights in 16 bits lose small updates and learn a little
        slower (0.7 % over 40 steps of an LSTM, benchmarks/harm_power.py); whether that lasts, the long look tells."""
        return _LEAN_OF_ROUNDED_WEIGHTS if self.rounds_weights else self.tolerance.loss


def claims_of(words: Sequence[str], job: Measurement | None = None, same_draws: bool = False) -> Claims:
    """``job``: a run of the unchanged job. Where it rounds coarsely itself, other kernels differ as coarsely.

    ``same_draws``: the runs were made to draw random numbers as the script does, where that can be.
    """
    practices = [get_practice(split_word(word)[0]) for word in words if not is_probe(word)]
    formats: list[str] = [practice.number_format for practice in practices]
    if job is not None and any(practice.risk != "exact" for practice in practices):
        formats.append(_format_of(job))
    return Claims(
        same_losses=all(practice.risk == "exact" and practice.same_losses for practice in practices),
        number_format=max(formats, key=_COARSENESS.index, default="fp32"),
        other_draws=tuple(
            practice.name
            for practice in practices
            if practice.other_draws and not (same_draws and practice.can_draw_the_same)
        ),
        rounds_weights=any(practice.rounds_weights for practice in practices),
    )


def _format_of(job: Measurement) -> str:
    """cuDNN's convolutions are allowed TF32 by default; other products only where the script says so."""
    if job.structure.mixed_precision or any(name in job.structure.parameter_dtypes for name in ("bfloat16", "float16")):
        return "bf16"
    tf32 = job.structure.modules.get("convolution") or job.origin.flags.get("float32_matmul_precision") != "highest"
    return "tf32" if job.devices and tf32 else "fp32"
