"""Draws the picture of README: a measurement as the terminal shows it.

python benchmarks/picture_measure.py MEASUREMENT.json docs/images/measure.svg
"""

import io
import sys

from rich.console import Console

from vivace.records.measurement import Measurement
from vivace.report.terminal import measurement_view


def main() -> None:
    record = Measurement.load(sys.argv[1])
    console = Console(record=True, width=104, file=io.StringIO(), force_terminal=True)
    console.print("$ vivace measure -- python examples/dlojz.py --device cuda --model resnet50 -b 256", style="bold")
    console.print(measurement_view(record, "runs/dlojz-001"))
    console.save_svg(sys.argv[2], title="vivace measure")


if __name__ == "__main__":
    main()
