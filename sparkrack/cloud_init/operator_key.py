"""The public half of the operator's key: the only key that a seed holds."""

from __future__ import annotations

import re
from pathlib import Path

from core.model.errors import printable_line
from core.ssh.operator_key import NoPublicHalfError, public_half
from core.util import regular_file

_KINDS = r"ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(?:256|384|521)|sk-(?:ssh-ed25519|ecdsa-sha2-nistp256)@openssh\.com"
_LINE = re.compile(rf"(?P<key>(?:{_KINDS}) [A-Za-z0-9+/]{{40,2000}}={{0,2}})(?: [ -~]{{0,200}})?")
_LONGEST = 4096


class OperatorKeyError(Exception):
    """No public key is available. The text has the fix."""


def public(private: Path) -> str:
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
        return checked(text, str(beside))
    if not private.is_file():
        raise OperatorKeyError(f"{private}: there is no such key; make one: ssh-keygen -t ed25519 -f {private}")
    try:
        return checked(public_half(private), str(private))
    except NoPublicHalfError as fault:
        why = "ssh-keygen does not give its public half"
        if fault.error:
            why = f"has a passphrase, or is not a key; write its public half to {beside}"
        raise OperatorKeyError(f"{private}: {why}") from None


def checked(text: str, where: str) -> str:
    """Kind and key in a line that is a public key and nothing else. Raises OperatorKeyError."""
    match = _LINE.fullmatch(text.strip())
    if not match:
        raise OperatorKeyError(f"{printable_line(where)}: is not one public key")
    return match["key"]
