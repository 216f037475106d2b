"""pyinfra's order of operations without reading source files, installed by importing this.

pyinfra orders operations by the line numbers of the calls that lead to them. It gets these from `inspect.stack`, which
for each frame also looks for its source text, in all modules that are loaded: some milliseconds of CPU time for each
operation of each host.
"""

from __future__ import annotations

import sys
from inspect import Traceback
from types import FrameType

from pyinfra.api import util


def stack() -> list[tuple[FrameType]]:
    """Return the frames of the caller and of those that called it, as `inspect.stack` does, without their source."""
    found: list[tuple[FrameType]] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        found.append((frame,))
        frame = frame.f_back
    return found


def frame_info(frame: FrameType) -> Traceback:
    """Return what `inspect.getframeinfo` does, without the source."""
    return Traceback(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name, None, None)


vars(util)["stack"] = stack
vars(util)["getframeinfo"] = frame_info
