"""Prove a node's toy. This one reads no node: it shows that its checks are found."""

from __future__ import annotations

from core.model import Node, Rack

from .options import ToyOptions


def test_the_level(node: Node, rack: Rack) -> None:
    """The level is the declared one."""
    assert rack.options(ToyOptions).level < 9, f"{node.name}: the level is too high"
