"""How good plans are on published tables: ``FileGrade`` and its rows. Made by ``vivace.plan``, shown by ``report``."""

from __future__ import annotations

from typing import Any

from vivace.records.base import Part

__all__ = ["FileGrade", "RowGrade"]


class RowGrade(Part):
    """One row: what was predicted and what was measured. Blank figures are None."""

    row_id: str
    model: str
    layout: str = ""
    group: str = ""
    predicted_s: float | None = None
    measured_s: float | None = None
    time_inside: bool | None = None
    """The measured time lies inside the interval that a plan prints."""
    predicted_gib: float | None = None
    measured_gib: float | None = None
    memory_inside: bool | None = None
    ran_out_of_memory: bool = False
    predicted_out_of_memory: bool = False
    skipped: str | None = None
    notes: tuple[str, ...] = ()
    samples: int = 1
    """Sequences or images per step."""
    from_gpu_hours: bool = False
    """The measured time is that of a whole run, restarts and all; scored apart from step times."""

    @property
    def time_error_pct(self) -> float | None:
        if self.predicted_s is None or self.measured_s is None:
            return None
        return 100.0 * (self.predicted_s - self.measured_s) / self.measured_s

    @property
    def has_memory(self) -> bool:
        return self.predicted_gib is not None and self.measured_gib is not None

    @property
    def used(self) -> bool:
        return self.skipped is None and (self.time_error_pct is not None or self.has_memory or self.ran_out_of_memory)


class FileGrade(Part):
    """The scores of one file."""

    file: str
    fitted: bool
    rows: int
    rows_used: int
    skipped: dict[str, int]
    step_time_rows: int
    step_time_mape: float | None
    step_time_inside_pct: float | None
    """Rows whose measured time lies inside the printed interval."""
    worst_row: str | None
    worst_row_error_pct: float | None
    gpu_hours_rows: int
    gpu_hours_mape: float | None
    gpu_hours_inside_pct: float | None
    memory_rows: int
    memory_mape: float | None
    memory_inside_pct: float | None
    oom_right: int
    oom_wrong: int
    fits_right: int
    fits_wrong: int
    rank_correlation: float | None
    rank_groups: int
    grades: tuple[RowGrade, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The scores without the rows."""
        return self.model_dump(exclude={"grades"})
