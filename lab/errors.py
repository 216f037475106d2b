"""Errors of the lab."""

from __future__ import annotations


class LabError(Exception):
    """The lab cannot do what was requested; the text has the reason and the fix, for the user. `then`: the command that
    fixes it; empty when it is the same command again.
    """

    def __init__(self, text: str, then: str = "") -> None:
        super().__init__(text)
        self.then = then


class NoLabHereError(LabError):
    """No lab can ever run on this machine, whatever its user does."""
