"""What the lab says when it cannot go on."""

from __future__ import annotations


class LabError(Exception):
    """The lab cannot do what was asked; the text says why and what would help, for a person."""
