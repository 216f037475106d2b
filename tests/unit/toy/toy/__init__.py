"""Toy: a node has one file with one number, as rack.yaml says.

A test adds it to a copy of the project, and shows what a new role touches and where it then appears.
"""

from __future__ import annotations

from core.model.role import Role

from .adopt import ADOPT
from .options import ToyOptions

ROLE = Role(
    __name__,
    title="A toy",
    promise="a file with the declared level",
    proof="`cat`",
    options=ToyOptions,
    risky=True,
    spreads=True,
    adopt=ADOPT,
)
