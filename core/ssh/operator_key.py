"""The operator's own key, of which only the public half is ever read by us."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from core.model.errors import printable_line
from core.util import regular_file

_SECONDS = 20
_KINDS = r"ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(?:256|384|521)|sk-(?:ssh-ed25519|ecdsa-sha2-nistp256)@openssh\.com"
_LINE = re.compile(rf"(?P<key>(?:{_KINDS}) [A-Za-z0-9+/]{{40,2000}}={{0,2}})(?: [ -~]{{0,200}})?")
_LONGEST = 4096


class OperatorKeyError(Exception):
    """No public key is available, or none that a run could use. The text has the fix."""


class _NoPublicHalfError(Exception):
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


def public_line(private: Path) -> str:
    """Return the public half in the form of authorized_keys: type, key and perhaps a comment.

    It is read from the file beside the private key when that holds the same key, else derived from the private key
    itself. Raises OperatorKeyError when there is no private key, or one that a run could not use: with a passphrase,
    and no agent that holds it.
    """
    if missing := missing_key(private):
        raise OperatorKeyError(missing)
    beside = _public_key_beside(private)
    try:
        own = _public_half(private)
        return beside if beside and _is_same_key(beside, own) else own
    except _NoPublicHalfError as fault:
        if not fault.has_passphrase:
            why = _last_line(fault.error) or "ssh-keygen does not give its public half"
            raise OperatorKeyError(f"access.key: {private} cannot be used: {why}") from None
    if beside and any(_is_same_key(beside, line) for line in _agent_keys()):
        return beside
    raise OperatorKeyError(f"access.key: {private} has a passphrase and no agent holds it; run ssh-add {private}")


def missing_key(private: Path) -> str:
    """Return that there is no private key, and how one is made; empty when there is one."""
    if private.is_file():
        return ""
    return f"access.key: {private} is not there; make one: ssh-keygen -t ed25519 -f {private}"


def public_key(private: Path) -> str:
    """Return type and key of the public half, without its comment: from the file beside the private one, else from that
    itself. We never read the private one ourselves. Raises OperatorKeyError.
    """
    beside = Path(f"{private}.pub")
    if beside.exists():
        try:
            text = regular_file.read_bytes(beside, _LONGEST).decode("ascii")
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "is not a public key"
            raise OperatorKeyError(f"{beside}: cannot be read as a public key: {why}") from None
        return _check_public_key(text, str(beside))
    if not private.is_file():
        raise OperatorKeyError(f"{private}: there is no such key; make one: ssh-keygen -t ed25519 -f {private}")
    try:
        return _check_public_key(_public_half(private), str(private))
    except _NoPublicHalfError as fault:
        why = "ssh-keygen does not give its public half"
        if fault.error:
            why = f"has a passphrase, or is not a key; write its public half to {beside}"
        raise OperatorKeyError(f"{private}: {why}") from None


def _check_public_key(text: str, where: str) -> str:
    """Kind and key in a line that is a public key and nothing else. Raises OperatorKeyError."""
    match = _LINE.fullmatch(text.strip())
    if not match:
        raise OperatorKeyError(f"{printable_line(where)}: is not one public key")
    return match["key"]


def _public_half(private: Path) -> str:
    """The public half of a private key, as a line of authorized_keys. Raises _NoPublicHalfError."""
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
        raise _NoPublicHalfError(b"") from None
    if done.returncode != 0:
        raise _NoPublicHalfError(done.stderr)
    return done.stdout.decode(errors="replace").strip()


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


def _last_line(error: bytes) -> str:
    lines = [line.strip() for line in error.decode(errors="replace").splitlines() if line.strip()]
    return printable_line(lines[-1]) if lines else ""
