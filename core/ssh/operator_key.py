"""The operator's own key, of which only the public half is ever read by us."""

from __future__ import annotations

import subprocess
from pathlib import Path

_SECONDS = 20


class NoPublicHalfError(Exception):
    """ssh-keygen does not return the public half of a key. `error`: its error message; empty if it could not be
    started, or did not answer.
    """

    def __init__(self, error: bytes) -> None:
        super().__init__("no public half")
        self.error = error

    @property
    def has_passphrase(self) -> bool:
        """Return whether the reason is a passphrase."""
        return b"passphrase" in self.error


def public_half(private: Path) -> str:
    """The public half of a private key, as a line of authorized_keys. Raises NoPublicHalfError."""
    try:
        # An empty passphrase, so that nothing is asked.
        done = subprocess.run(
            ["ssh-keygen", "-y", "-P", "", "-f", str(private)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        raise NoPublicHalfError(b"") from None
    if done.returncode != 0:
        raise NoPublicHalfError(done.stderr)
    return done.stdout.decode(errors="replace").strip()
