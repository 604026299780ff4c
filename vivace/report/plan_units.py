"""Time, energy, carbon and money of a plan in the unit that a reader would choose: minutes for a short run,
days for a long one. Records keep their base units (days, MWh, tonnes).

Called by the views of a plan.
"""

from __future__ import annotations

import math

from vivace.records.plan import PlanInterval

__all__ = ["carbon", "count", "days", "energy", "figure", "gpu_hours", "money", "span", "step"]

# (units of the record, its name), largest first: the first one of which there is at least one is chosen.
Units = tuple[tuple[float, str], ...]
# Up to 48 hours are hours, up to 90 minutes are minutes: "1.4 h" says less than "84 min".
DAY_UNITS: Units = ((2.0, "days"), (90 / 1440, "h"), (90 / 86_400, "min"), (0.0, "s"))
PER_DAY = {"days": 1.0, "h": 24.0, "min": 1440.0, "s": 86_400.0}
STEP_UNITS: Units = ((10_000.0, "s"), (0.0, "ms"))
PER_MS = {"s": 1e-3, "ms": 1.0}
HOUR_UNITS: Units = ((1e6, "M GPU-hours"), (1.0, "GPU-hours"), (1 / 60, "GPU-minutes"), (0.0, "GPU-seconds"))
PER_HOUR = {"M GPU-hours": 1e-6, "GPU-hours": 1.0, "GPU-minutes": 60.0, "GPU-seconds": 3600.0}
ENERGY_UNITS: Units = ((1000.0, "GWh"), (1.0, "MWh"), (1e-3, "kWh"), (0.0, "Wh"))
PER_MWH = {"GWh": 1e-3, "MWh": 1.0, "kWh": 1e3, "Wh": 1e6}
CARBON_UNITS: Units = ((1.0, "t"), (1e-3, "kg"), (0.0, "g"))
PER_TONNE = {"t": 1.0, "kg": 1e3, "g": 1e6}


def figure(value: float) -> str:
    """Three significant figures: an estimate has no more.

    >>> figure(0.04567), figure(3.14159), figure(31.4159), figure(31415.9), figure(0.0)
    ('0.0457', '3.14', '31.4', '31,400', '0')
    """
    if value == 0 or not math.isfinite(value):
        return f"{value:.0f}"
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.{min(9, max(0, 2 - math.floor(math.log10(abs(rounded)))))}f}"


def count(value: float) -> str:
    """
    >>> count(2.5e9), count(3.5e12), count(124_439_808), count(950)
    ('2.5 B', '3.5 T', '124 M', '950')
    """
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if value >= size:
            return f"{value / size:.3g} {letter}"
    return f"{value:,.0f}"


def _unit(value: float, units: Units) -> str:
    return next(name for least, name in units if value >= least)


def _converted(value: PlanInterval, units: Units, per_base: dict[str, float]) -> str:
    unit = _unit(value.estimate, units)
    factor = per_base[unit]
    scaled = PlanInterval(estimate=value.estimate * factor, low=value.low * factor, high=value.high * factor)
    return span(scaled, unit)


def span(value: PlanInterval, unit: str) -> str:
    """
    >>> span(PlanInterval(estimate=12.34, low=10, high=15.55), "GiB")
    '12.3 GiB [10.0 to 15.6]'
    """
    return f"{figure(value.estimate)} {unit} [{figure(value.low)} to {figure(value.high)}]"


def days(value: PlanInterval) -> str:
    """
    >>> days(PlanInterval(estimate=0.05, low=0.04, high=0.06))
    '72.0 min [57.6 to 86.4]'
    """
    return _converted(value, DAY_UNITS, PER_DAY)


def step(value: PlanInterval) -> str:
    """
    >>> step(PlanInterval(estimate=105_220, low=95_000, high=120_000))
    '105 s [95.0 to 120]'
    """
    return _converted(value, STEP_UNITS, PER_MS)


def gpu_hours(value: PlanInterval) -> str:
    """
    >>> gpu_hours(PlanInterval(estimate=2_173_387, low=1.8e6, high=2.7e6))
    '2.17 M GPU-hours [1.80 to 2.70]'
    """
    return _converted(value, HOUR_UNITS, PER_HOUR)


def energy(value: PlanInterval) -> str:
    """
    >>> energy(PlanInterval(estimate=0.0012, low=0.001, high=0.0015))
    '1.20 kWh [1.00 to 1.50]'
    """
    return _converted(value, ENERGY_UNITS, PER_MWH)


def carbon(tonnes: float) -> str:
    """
    >>> carbon(0.000064), carbon(25.7)
    ('64.0 g CO2', '25.7 t CO2')
    """
    unit = _unit(tonnes, CARBON_UNITS)
    return f"{figure(tonnes * PER_TONNE[unit])} {unit} CO2"


def money(value: float, currency: str) -> str:
    """Cents below a hundred; nothing costs 0.00 that costs something.

    >>> money(2.456, "EUR"), money(12345.6, "EUR"), money(0.0034, "EUR")
    ('2.46 EUR', '12,300 EUR', '0.0034 EUR')
    """
    if value >= 100 or value == 0:
        return f"{figure(value)} {currency}"
    return f"{value:.2f} {currency}" if value >= 0.01 else f"{value:.2g} {currency}"
