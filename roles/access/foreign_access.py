"""Keys and ssh settings of others that grant access: reported as unmanaged, never changed. Pure."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterator

from core.model import Rack
from core.model.errors import printable_line
from core.util.event import Event, EventKind
from roles.access.authorized_keys import node_of_line
from roles.access.desired import decode_file, public_key

_LINE = re.compile(
    r'(?P<options>(?:[^\s"]|"(?:\\.|[^"\\])*")+[ \t]+)?'
    r"(?P<kind>[a-z0-9@.-]{3,60})[ \t]+(?P<blob>AAAA[A-Za-z0-9+/]{8,}={0,2})(?:[ \t]+(?P<comment>.*))?"
)
"""A line of authorized_keys (sshd(8)): options, whose quoted parts may hold blanks, then type, key and comment."""
_LONGEST = 60
"""Characters of a comment that are shown."""
_SSHD = {"authorizedkeyscommand": "AuthorizedKeysCommand", "trustedusercakeys": "TrustedUserCAKeys"}
"""Settings of sshd that accept keys that are in no file of authorized keys."""


def unmanaged(rack: Rack, entry: str, operator: str | None, listing: str, shown: str) -> tuple[Event, ...]:
    """Return what grants access and is not ours.

    entry: the file with our lines. operator: the public key of the run, or None when it is not known. listing: the
    answer of the probe. shown: the output of `sshd -T`. Raises ValueError for an answer of another form.
    """
    found: dict[tuple[str, str], Event] = {}
    for line in listing.splitlines():
        kind, _, rest = line.partition(" ")
        path, _, content = rest.rpartition(" ")
        if kind not in ("keys", "config", "unread") or not path:
            raise ValueError(f"access-foreign: unexpected probe output {line[:60]!r}")
        for subject, detail in _file_findings(
            rack, kind, path, decode_file("access-foreign", content), entry, operator
        ):
            event = Event(EventKind.UNMANAGED, subject=printable_line(subject), detail=detail)
            found.setdefault((subject, detail), event)
    settings = dict(line.partition(" ")[::2] for line in shown.splitlines())
    sshd = [
        Event(EventKind.UNMANAGED, subject=f"sshd: {name}", detail=printable_line(settings[key])[:_LONGEST])
        for key, name in _SSHD.items()
        if settings.get(key, "none") != "none"
    ]
    return (*found.values(), *sshd)


def _file_findings(
    rack: Rack, kind: str, path: str, content: bytes, entry: str, operator: str | None
) -> Iterator[tuple[str, str]]:
    """Subject and detail of each finding in a file."""
    if kind == "unread":
        yield path, "sshd reads keys from there (AuthorizedKeysFile); which ones is unknown"
        return
    for number, raw in enumerate(content.splitlines(), 1):
        text = raw.decode("utf-8", "backslashreplace").strip()
        if not text or text.startswith("#"):
            continue
        if kind == "config":
            words = text.replace("=", " ").lower().split()
            if (words[0] == "host" and "*" in words[1:]) or words[:2] == ["match", "all"]:
                yield f"{path}:{number}", "these ssh options apply to logins to the nodes as well"
        elif path != entry or (node_of_line(rack, raw) is None and not _is_operator(text, operator)):
            yield f"{path}:{number}", _shown_key(text)


def _shown_key(text: str) -> str:
    """What is shown of a key: never the key itself, nor its options, which may hold secrets."""
    line = _LINE.fullmatch(text)
    try:
        blob = base64.b64decode(line["blob"], validate=True) if line else b""
    except binascii.Error:
        blob = b""
    if line is None or not blob:
        return "a line that is not a key of a known form"
    fingerprint = base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")
    what = "accepts certificates of" if "cert-authority" in (line["options"] or "").lower() else "accepts"
    comment = printable_line(line["comment"] or "")[:_LONGEST]
    return f"{what} SHA256:{fingerprint} ({comment or 'no comment'})"


def _is_operator(text: str, operator: str | None) -> bool:
    line = _LINE.fullmatch(text)
    return operator is not None and line is not None and public_key(operator).split(" ")[1] == line["blob"]
