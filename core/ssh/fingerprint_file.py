"""File of fingerprints that were read from the consoles, to confirm hosts without a pinned key."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from core.model.errors import truncate
from core.ssh.host_keys import HostKey, HostKeyError
from core.util import regular_file

_FINGERPRINT = re.compile(r"SHA256:[A-Za-z0-9+/]{43}")

Vouchers = dict[str, frozenset[str]]
"""Fingerprints by the name, or address, in front of them."""


def read_fingerprints(file: Path) -> Vouchers:
    """Parse a fingerprint file: lines `NODE SHA256:...`, or of a known_hosts file. Raises HostKeyError, also for a line
    that is neither.
    """
    found: dict[str, set[str]] = {}
    try:
        lines = regular_file.read_text(file).splitlines()
    except (OSError, ValueError) as error:
        raise HostKeyError(f"{file} cannot be read: {getattr(error, 'strerror', None) or 'no text'}") from None
    for number, line in enumerate(lines, start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        fingerprint = _parse_fingerprint(words[1:])
        if fingerprint is None:
            raise HostKeyError(
                f"{file}:{number}: {truncate(line)} is neither NODE SHA256:... nor a line of known_hosts"
            )
        for name in words[0].split(","):
            found.setdefault(name, set()).add(fingerprint)
    return {name: frozenset(prints) for name, prints in found.items()}


def _parse_fingerprint(words: Sequence[str]) -> str | None:
    if words and _FINGERPRINT.fullmatch(words[0]):
        return words[0]
    try:
        return HostKey.parse(" ".join(words[:2])).fingerprint
    except HostKeyError:
        return None
