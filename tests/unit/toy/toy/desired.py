"""Content of the toy's file. Pure."""

from __future__ import annotations

from core.model import Rack

from .options import ToyOptions

PATH = "/etc/toy.conf"


def content(rack: Rack) -> bytes:
    """The file."""
    return f"level = {rack.options(ToyOptions).level}\n".encode()
