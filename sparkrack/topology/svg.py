"""A picture as SVG, laid out by Graphviz's program `dot` (Debian and Ubuntu: package graphviz)."""

from __future__ import annotations

import re
import subprocess

from .dot import source
from .model import Picture

_INNER = re.compile(r"<!--.*?-->\n?|<title>.*?</title>\n?", re.DOTALL)
PROGRAM = "dot"
SECONDS = 60
"""How long a layout may take; eight nodes take a tenth of a second."""


class DrawingError(Exception):
    """There is no SVG; `str()` says why in one line."""


def render(picture: Picture) -> str:
    """An `<svg>` element with nothing before it: no fonts, links or document type from elsewhere, so that it may stand
    in a page or in a file. The same picture gives the same text on one machine. Raises DrawingError."""
    try:
        done = subprocess.run(
            [PROGRAM, "-Tsvg"], input=source(picture).encode(), capture_output=True, timeout=SECONDS, check=False
        )
    except FileNotFoundError:
        raise DrawingError(f"there is no program {PROGRAM}, which draws SVG: install the package graphviz") from None
    except OSError as fault:
        raise DrawingError(f"{PROGRAM} cannot be started: {fault.strerror}") from None
    except subprocess.TimeoutExpired:
        raise DrawingError(f"{PROGRAM} did not end within {SECONDS} s") from None
    text = done.stdout.decode(errors="replace")
    if done.returncode or "<svg" not in text:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise DrawingError(f"{PROGRAM} drew nothing: {lines[0] if lines else f'exit {done.returncode}'}")
    # What comes before the element names a document type elsewhere, and comments name the version. Titles would show
    # DOT's own names under the pointer. A < of ours is &lt; there, so neither can be a word of the picture.
    return _INNER.sub("", text[text.index("<svg") :])
