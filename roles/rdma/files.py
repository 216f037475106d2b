"""A file of ours on a node. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from sparkrack.fleet import Rack


@dataclass(frozen=True)
class File:
    """Where it is, what it holds and who may do what with it; root owns it. `check`: shell text that must succeed
    with the new file as "$new"."""

    path: str
    content: bytes
    mode: str = "644"
    check: str = ""


def header(rack: Rack) -> str:
    """The first line of each."""
    return f"# Written by sparkrack for the rack {rack.rack}; a change here is overwritten.\n"
