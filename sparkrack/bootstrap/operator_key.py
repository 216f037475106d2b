"""The operator's own key, which a node must accept."""

from __future__ import annotations

import subprocess
from pathlib import Path

from core.ssh.operator_key import NoPublicHalfError, public_half
from core.util import regular_file
from sparkrack.bootstrap.errors import BootstrapError, last_line

_SECONDS = 20


def public_line(private: Path) -> str:
    """Return the public half in the form of authorized_keys: type, key and perhaps a comment.

    It is read from the file beside the private key when that holds the same key, else derived from the private key
    itself. Raises BootstrapError when there is no private key, or one that a run could not use: with a passphrase, and
    no agent that holds it.
    """
    if not private.is_file():
        raise BootstrapError(f"access.key: {private} is not there; make one: ssh-keygen -t ed25519 -f {private}")
    beside = _public_key_beside(private)
    try:
        own = public_half(private)
        return beside if beside and _is_same_key(beside, own) else own
    except NoPublicHalfError as fault:
        if not fault.has_passphrase:
            why = last_line(fault.error) or "ssh-keygen does not give its public half"
            raise BootstrapError(f"access.key: {private} cannot be used: {why}") from None
    if beside and any(_is_same_key(beside, line) for line in _agent_keys()):
        return beside
    raise BootstrapError(f"access.key: {private} has a passphrase and no agent holds it; run ssh-add {private}")


def _public_key_beside(private: Path) -> str:
    try:
        lines = regular_file.read_text(f"{private}.pub").splitlines()
    except (OSError, ValueError):
        return ""
    return lines[0].strip() if lines and len(lines[0].split()) >= 2 and lines[0].isprintable() else ""


def _agent_keys() -> list[str]:
    try:
        done = subprocess.run(["ssh-add", "-L"], capture_output=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.decode(errors="replace").splitlines() if done.returncode == 0 else []


def _is_same_key(one: str, other: str) -> bool:
    return one.split()[:2] == other.split()[:2]
