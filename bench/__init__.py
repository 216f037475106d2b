"""Side-by-side measurements: the same desired state, on the same targets, by sparkrack and by others.

`python -m bench` is the command; docs/bench.md says what it measures and how.
"""
