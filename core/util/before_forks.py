"""The last import of a process that only forks others: what it has loaded stays shared with them.

Python's search for unused objects writes into the head of every object. Without this, each forked process soon has a
copy of all of them.
"""

import gc

from core.util.fast_start import OBJECTS

gc.collect()
gc.freeze()
gc.set_threshold(OBJECTS)
