"""A picture as SVG, laid out by Graphviz's program `dot` (Debian and Ubuntu: package graphviz)."""

from __future__ import annotations

import re
import subprocess

from core.util.command_error import CommandError
from sparkrack.topology.model import Topology
from sparkrack.topology.render_dot import LIGHT, Palette, source

_INNER = re.compile(r"<!--.*?-->\n?|<title>.*?</title>\n?", re.DOTALL)
PROGRAM = "dot"
LAYOUT_SECONDS = 60
"""Seconds for a layout; eight nodes take a tenth of a second."""


class DrawingError(CommandError):
    """There is no SVG; `str()` has the reason in one line."""


def render(picture: Topology, palette: Palette = LIGHT) -> str:
    """Return an `<svg>` element with nothing before it: no external fonts, links or document type, so that it can be
    embedded in a page or written to a file. The same picture gives the same text on one machine. Raises DrawingError.
    """
    try:
        done = subprocess.run(
            [PROGRAM, "-Tsvg"],
            input=source(picture, palette).encode(),
            capture_output=True,
            timeout=LAYOUT_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        raise DrawingError(f"there is no program {PROGRAM}, which draws SVG: install the package graphviz") from None
    except OSError as fault:
        raise DrawingError(f"{PROGRAM} cannot be started: {fault.strerror}") from None
    except subprocess.TimeoutExpired:
        raise DrawingError(f"{PROGRAM} did not end within {LAYOUT_SECONDS} s") from None
    text = done.stdout.decode(errors="replace")
    if done.returncode or "<svg" not in text:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise DrawingError(f"{PROGRAM} drew nothing: {lines[0] if lines else f'exit {done.returncode}'}")
    # What comes before the element names a document type elsewhere, and comments name the version. Titles would show
    # DOT's own names under the pointer. A < of ours is &lt; there, so neither can be a word of the picture.
    return _INNER.sub("", text[text.index("<svg") :])
