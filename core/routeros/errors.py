"""Errors between us and a switch. Every text is one line and holds no secret."""

from __future__ import annotations


class SwitchError(OSError):
    """Talking to the switch failed; the text is one line and holds no secret."""


class SentenceError(SwitchError):
    """The switch answered with a `!trap`; the session lives on."""


class LoginError(SwitchError):
    """The switch did not accept user and password."""


class CertificateError(SwitchError):
    """The switch showed another certificate than the one that is pinned; nothing was sent."""


class SessionError(SwitchError):
    """The connection is gone or cannot be trusted any more. The switch undoes what safe mode held."""


class StoppedError(SwitchError):
    """Nothing more may be sent to the switch, since the run has lost its lock; this sentence was not sent."""


class UnreadableError(ValueError):
    """The rows that were read cannot be what a switch has; nothing may be concluded from them."""


class RefusedError(ValueError):
    """This switch must not be changed; `reasons` state why, one line each."""

    def __init__(self, reasons: tuple[str, ...]) -> None:
        self.reasons = reasons
        super().__init__("; ".join(reasons))


class CheckError(Exception):
    """A check between the writes did not hold: the transaction must not go on. The text is one line."""
