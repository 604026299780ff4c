"""``SplitFacts``: what rank 0 told of a training that vivace split over ranks. Part of a measurement and of a run."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from pydantic import Field

from vivace.protocol.scale_report import REPORTS, ScaleReport
from vivace.protocol.version import ProtocolError
from vivace.records.base import Part
from vivace.records.privacy import safe_text

__all__ = ["GatheredLine", "SplitFacts", "read_split_facts"]

_MIB = 2**20


class GatheredLine(Part):
    """A line of the script that needs a whole batch, where each rank has its rows: an exchange that costs time."""

    by: str = Field(description="the torch function")
    file: str
    line: int
    code: str
    per_step: float
    mib_per_step: float


class SplitFacts(Part):
    ranks: int
    split: tuple[str, ...] = Field((), description="models that are split over the ranks")
    whole: dict[str, str] = Field(default_factory=dict, description="model → why every rank runs it whole")
    loaded_whole: dict[str, str] = Field(default_factory=dict, description="dataset → why every rank loads all of it")
    gathered: tuple[GatheredLine, ...] = ()
    steps: int = Field(0, description="that the exchanges were counted over; the first five are left out")
    sent_mib_per_step: float | None = Field(None, description="by rank 0, in all exchanges")
    gradient_mib: float = 0.0
    sent_early: int = Field(0, description="buckets of gradients that were sent while the backward pass ran")
    drift_checks: int = Field(0, description="comparisons of all ranks' parameters")


def read_split_facts(folder: Path) -> SplitFacts | None:
    """Of several processes the one that trained longest; None where nothing was split."""
    reports = []
    for path in folder.glob(REPORTS):
        with contextlib.suppress(OSError, ValueError, ProtocolError):
            reports.append(ScaleReport.from_json(json.loads(path.read_text())))
    return _facts(max(reports, key=lambda report: report.steps)) if reports else None


def _facts(report: ScaleReport) -> SplitFacts:
    steps = max(1, report.steps)
    return SplitFacts(
        ranks=report.world,
        split=tuple(report.split),
        whole={name: safe_text(why) for name, why in report.whole.items()},
        loaded_whole={name: safe_text(why) for name, why in report.loaded_whole.items()},
        gathered=tuple(
            GatheredLine(
                by=one.by, file=one.file, line=one.line, code=safe_text(one.code), per_step=one.calls / steps,
                mib_per_step=one.bytes / _MIB / steps,
            )
            for one in (report.gathered if report.steps else ())
        ),
        steps=report.steps,
        sent_mib_per_step=report.bytes_sent / _MIB / steps if report.steps else None,
        gradient_mib=report.gradient_bytes / _MIB,
        sent_early=report.sent_early,
        drift_checks=report.drift_checks,
    )  # fmt: skip
