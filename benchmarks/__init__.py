"""Side-by-side measurements: the same desired state, on the same targets, by sparkrack and by other tools.

`python -m benchmarks` is the command; docs/evidence/bench.md describes what it measures and how.
"""


class BenchError(Exception):
    """A measurement is not possible, or would compare different results. The text has the reason."""
