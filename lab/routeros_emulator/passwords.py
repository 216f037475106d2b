"""Passwords are kept as salted digests only: neither the saved state nor a dump can give one away."""

from __future__ import annotations

import hashlib
import hmac
import os

# Enough to make a leaked state file of a laboratory switch useless, little enough not to slow down logins.
_ROUNDS = 10_000


def digest(password: str) -> str:
    """Give ``salt$digest`` of a password, both hexadecimal."""
    salt = os.urandom(16)
    return f"{salt.hex()}${_stretch_password(password, salt)}"


def agrees(password: str, kept: str) -> bool:
    """Say whether a password is the one a digest was made of."""
    salt, _, wanted = kept.partition("$")
    return hmac.compare_digest(_stretch_password(password, bytes.fromhex(salt)), wanted)


def _stretch_password(password: str, salt: bytes) -> str:
    raw = password.encode("utf-8", "surrogateescape")
    return hashlib.pbkdf2_hmac("sha256", raw, salt, _ROUNDS).hex()
