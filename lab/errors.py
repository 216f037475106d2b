"""Errors of the lab."""

from __future__ import annotations


class LabError(Exception):
    """The lab cannot do what was requested; the text has the reason and the fix, for the user."""


class NoLabHereError(LabError):
    """No lab can ever run on this machine, whatever its user does."""
