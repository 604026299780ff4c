"""Times to a target over seeds, some of which never arrive: medians, ratios and their intervals.

Which estimator, and why (``benchmarks/race_calibration.py`` simulates all of it, early stopping included):

- Every run arrived: means of the logarithms, and Welch's t for their difference (``arrived.py``). Three seeds suffice.
- Some runs never arrived: they are censored. The ratio is the shift of the logarithms that a rank test (Wilcoxon's in
  Gehan's form) does not reject, both sides censored at the same point (``ranks.py``). It assumes no distribution, and
  needs four seeds a side before it can say anything at 95 %.
- A race looks at its figures after every round: ``looks.py`` has the share that each look asks for.
"""
